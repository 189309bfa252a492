# SPDX-License-Identifier: Apache-2.0
"""What a conversion wrote, by Python's zipfile and pyarrow alone."""

import zipfile

import pyarrow as pa


def members(outcome):
    """Bytes of each member of the ZIP."""
    with zipfile.ZipFile(outcome.paths.container) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rows(path):
    """Rows of a table."""
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all().to_pylist()
