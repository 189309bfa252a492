# SPDX-License-Identifier: Apache-2.0
import re
from glob import glob

from setuptools import find_packages, setup

package_name = "edgefirst_ros"
URL = ""
"""Address of the repository, once it has one: links of the long description are below it, and plain text until then."""

FLEET = ["distributed>=2025.1", "cryptography>=42", "obstore>=0.11.1"]
"""An engine for many recordings, and object storage."""
NCORE = [
    "cbor2>=5.6.5",
    "dataclasses_json>=0.6",
    "scipy>=1.11",
    "typing_extensions>=4.8",
    "universal_pathlib>=0.2",
    "zarr>=2.18,<3",
]
"""What nvidia-ncore needs but torch, which only its camera models use."""
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.26"]
BAGS = ["rosbags>=0.11"]
"""Reads *.db3 of rosbag2 and *.bag of ROS 1."""
PROTOBUF = ["mcap-protobuf-support>=0.5.3"]
"""Reads Foxglove's messages in protobuf."""
LZF = ["python-neo-lzf>=0.3"]
"""PCD files whose data are packed: setting `pcd: binary_compressed`."""
REPORT = ["jinja2>=3.1", "plotly>=7.1"]
VIEW = ["rerun-sdk>=0.41,<0.42; python_version >= '3.11'"]
"""170 MB; its files are read by the next version at most. It has no wheels for Python 3.10."""


def describe():
    """Return the README with absolute links: a package index has none of the files beside it."""
    text = open("README.md", encoding="utf-8").read()
    picture, link = (rf"![\1]({URL}/raw/HEAD/\2)", rf"[\1]({URL}/blob/HEAD/\2)") if URL else ("", r"\1")
    text = re.sub(r"!\[([^]]*)\]\((?!https?:)([^)]+)\)", picture, text)
    return re.sub(r"(?<!!)\[([^]]*)\]\((?!https?:)([^)]+)\)", link, text)


SHORT = [
    *LZF,
    "hypothesis>=6.100",
    "opencv-python-headless>=4.10.0.84",
    "pycocotools>=2.0.8",
    "pypcd4>=1.2",
    "pytest>=9.0",
    "pytest-xdist>=3.5",
    *BAGS,
    *PROTOBUF,
    "foxglove-schemas-protobuf>=0.4",
]
"""What the short tests of other Python versions need: `make test-python`, `make test-lowest`."""

setup(
    name=package_name,
    version=re.search(r"<version>(.*)</version>", open("package.xml", encoding="utf-8").read())[1],
    description="Turns drives of Maivin cameras and other vehicles into EdgeFirst datasets, on the device and off it",
    long_description=describe(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    maintainer="edgefirst_ros maintainers",
    maintainer_email="maintainers@edgefirst-ros.invalid",
    packages=find_packages(include=[package_name, f"{package_name}.*"]),
    package_data={package_name: ["py.typed", "report/templates/*"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{package_name}"]),
        (f"share/{package_name}", ["package.xml", "README.md", "LICENSE", "CHANGELOG.rst"]),
        (f"share/{package_name}/config", glob("config/*.*")),
        (f"share/{package_name}/config/rigs", glob("config/rigs/*")),
        (f"share/{package_name}/launch", glob("launch/*")),
    ],
    zip_safe=False,
    classifiers=[
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering",
    ],
    python_requires=">=3.10,<3.14",
    install_requires=[
        "av>=17.0.1",
        "edgefirst-schemas>=4.1",
        "isal>=1.6",
        "lz4>=4.3",
        "mcap>=1.2.1",
        "mcap-ros2-support>=0.5.5",
        "numpy>=2.0",
        "pillow>=11.1",
        "polars>=1.44.2",
        "pyarrow>=25.0.1",
        "pydantic>=2.10",
        "pyyaml>=6.0",
        "rich>=13.8",
        "simplejpeg>=1.8",
        "typer>=0.26",
        "typing_extensions>=4.12.2",
        "zlib-ng>=1.0",
        "zstandard>=0.22",
    ],
    extras_require={
        "bags": BAGS,
        "benchmark": [*NCORE, *REPORT, *BAGS],
        "docs": DOCS,
        "fleet": FLEET,
        "lzf": LZF,
        "l5kit": ["numcodecs>=0.12,<0.16"],  # to read what blosc has packed
        "ncore": ["nvidia-ncore>=19.8,<20"],  # brings torch, which this package does not use: docs/how-to/export.md
        "ncore-light": NCORE,
        "protobuf": PROTOBUF,
        "report": REPORT,
        "view": VIEW,
        "zenoh": ["eclipse-zenoh>=1.10,<2", "obstore>=0.11.1"],  # the device's own bus, and uploads
        "test-short": SHORT,
        "test": [
            *SHORT,
            *DOCS,
            *FLEET,
            *NCORE,
            *REPORT,
            *VIEW,
            "colcon-common-extensions",
            "colcon-ros",
            "eclipse-zenoh>=1.10,<2",
            "edgefirst-client>=2.19",
            "moto[server]>=5.1",
            "mypy>=1.11",
            "playwright>=1.50",
            "pymap3d>=2.9",
            "ruff>=0.6",
            "setuptools>=70.1,<80",  # colcon-core asks for the older ones
            "transforms3d>=0.4.2",
            "types-PyYAML",
        ],
    },
    entry_points={"console_scripts": ["edgefirst-ros = edgefirst_ros.cli:main"]},
)
