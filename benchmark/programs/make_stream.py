# SPDX-License-Identifier: Apache-2.0
"""The access units of a recording's video, one after the other.

make_stream.py OUT '{"of": RECORDING}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from preload import messages

from edgefirst_ros.messages import decode
from edgefirst_ros.streams import VIDEO


def main() -> None:
    with Path(sys.argv[1]).open("wb") as out:
        for message in messages(Path(json.loads(sys.argv[2])["of"]), VIDEO):
            out.write(decode(message).data.tobytes())


if __name__ == "__main__":
    main()
