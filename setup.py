# SPDX-License-Identifier: Apache-2.0
from glob import glob

from setuptools import find_packages, setup

package_name = "edgefirst_ros"

setup(
    name=package_name,
    version="0.1.0",
    description="Turns drives recorded with the Maivin into EdgeFirst datasets, on the device and off it",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    maintainer="edgefirst_ros maintainers",
    maintainer_email="maintainers@edgefirst-ros.invalid",
    packages=find_packages(include=[package_name, f"{package_name}.*"]),
    package_data={package_name: ["py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{package_name}"]),
        (f"share/{package_name}", ["package.xml"]),
        (f"share/{package_name}/config", glob("config/*")),
        (f"share/{package_name}/launch", glob("launch/*")),
    ],
    zip_safe=False,
    python_requires=">=3.11,<3.14",
    install_requires=[
        "av>=14.0",
        "edgefirst-schemas>=4.1",
        "isal>=1.6",
        "lz4>=4.3",
        "mcap>=1.2",
        "mcap-ros2-support>=0.5.5",
        "numpy>=1.26",
        "pillow>=10.2",
        "polars>=1.12",
        "pyarrow>=17.0",
        "pydantic>=2.6",
        "python-neo-lzf>=0.3",
        "pyyaml>=6.0",
        "rich>=13.7",
        "simplejpeg>=1.7.4",
        "typer>=0.12",
        "zstandard>=0.22",
    ],
    extras_require={
        "benchmark": ["rosbags>=0.10"],
        "test": [
            "colcon-common-extensions",
            "colcon-ros",
            "edgefirst-client>=2.19",
            "hypothesis>=6.100",
            "mypy>=1.11",
            "opencv-python-headless>=4.9",
            "pypcd4>=1.2",
            "pytest>=9.0",
            "pytest-xdist>=3.5",
            "rosbags>=0.10",
            "ruff>=0.6",
            "setuptools>=70.1,<80",  # colcon-core asks for the older ones
            "types-PyYAML",
        ],
    },
    entry_points={"console_scripts": ["edgefirst-ros = edgefirst_ros.cli:main"]},
)
