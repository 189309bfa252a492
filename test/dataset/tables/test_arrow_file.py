# SPDX-License-Identifier: Apache-2.0
"""Tables as files: who owns what was read."""

import numpy as np
import pyarrow as pa

from edgefirst_ros.dataset.tables.arrow_file import TableFile


def test_what_is_read_belongs_to_arrow(tmp_path):
    """Buffers of a file of Python would be freed by Arrow's threads, which aborts an interpreter that is ending."""
    path = tmp_path / "drive.arrow"
    table = pa.table({"name": ["drive"] * 5000, "frame": np.arange(5000, dtype=np.uint32)})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    before = pa.total_allocated_bytes()
    batches = list(TableFile(path).batches())
    assert pa.total_allocated_bytes() - before >= sum(batch.nbytes for batch in batches) == table.nbytes
