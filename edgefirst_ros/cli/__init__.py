# SPDX-License-Identifier: Apache-2.0
"""The command `edgefirst-ros`: one verb a file. Libraries are imported when a verb runs, so that help comes at once."""

from edgefirst_ros.cli.start import main

__all__ = ["main"]
