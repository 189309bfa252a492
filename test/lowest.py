# SPDX-License-Identifier: Apache-2.0
"""Prints the lowest version of every requirement of setup.py as a constraint for pip, a line each.

python test/lowest.py > lowest.txt && pip install -c lowest.txt -e ".[test-short]"
"""

import re
import sys
from pathlib import Path

text = (Path(__file__).parents[1] / "setup.py").read_text(encoding="utf-8")
required = re.search(r"install_requires=\[(.*?)\n    \]", text, re.DOTALL)[1] + text[text.index("SHORT = [") :]
floors = dict(re.findall(r'"([A-Za-z0-9_-]+)(?:\[\w+\])?>=([\d.]+)', required.partition("\n]")[0] + required))
if sys.version_info >= (3, 13):  # the first ones with wheels for it
    floors |= {"lz4": "4.4", "numpy": "2.1", "pydantic": "2.10.1", "zstandard": "0.23"}
for name, version in floors.items():
    print(f"{name}=={version}")
