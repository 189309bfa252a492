# SPDX-License-Identifier: Apache-2.0
"""What a file of the viewer has, by the viewer's own command."""

import re
import subprocess

from edgefirst_ros.report.view.viewer import find_program


def rows(path):
    """Rows by (entity, component), as rerun's own command tells them."""
    done = subprocess.run([find_program(), "rrd", "print", path], capture_output=True, text=True, check=True)
    found = {}
    for number, entity, columns in re.findall(r"with (\d+) rows .*? - (\S+) - data columns: \[(.*)\]", done.stdout):
        for column in columns.split():
            found[entity, column] = found.get((entity, column), 0) + int(number)
    return found
