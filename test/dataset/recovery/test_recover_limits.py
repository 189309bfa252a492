# SPDX-License-Identifier: Apache-2.0
"""What is over a limit is not damaged: `recover` says so and changes nothing."""

import zipfile

import pyarrow as pa
import pytest
from unfinished_datasets import SEQUENCE, cut, everything, finish, sample

from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.errors import TooLargeError
from edgefirst_ros.limits import Limits

SAMPLES = [sample(frame) for frame in range(4)]
SMALL = Limits(table_rows=1, unpacked_bytes=1 << 20)
ROWS = 1 << 18


def packed_table(path):
    """Many rows of a column in a few bytes."""
    batch = pa.record_batch([pa.nulls(ROWS)], names=["name"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def test_a_finished_dataset_over_a_limit_is_not_taken_for_a_cut_one(tmp_path):
    paths = finish(tmp_path, SAMPLES)
    packed_table(paths.arrow)
    before = everything(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(TooLargeError, match=r"drive\.arrow: has 262144 .*raise the setting limits\.table_rows"):
            recover(paths.container, limits=SMALL, dry_run=dry_run)
    assert everything(tmp_path) == before
    assert recover(paths.container, limits=Limits(table_rows=ROWS)).complete


@pytest.mark.parametrize("table", ["arrow", "frames"])
def test_of_a_cut_dataset_with_a_table_over_a_limit_all_keep_their_names(tmp_path, table):
    """The archive is cut, the table is whole: it is not put aside, and nothing is renamed or removed."""
    paths = finish(tmp_path, SAMPLES)
    packed_table(getattr(paths, table))
    cut(paths.container, paths.container.stat().st_size - 50)
    before = everything(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(TooLargeError, match=r"arrow: has 262144 rows .*raise the setting limits\.table_rows"):
            recover(paths.container, limits=SMALL, dry_run=dry_run)
        assert everything(tmp_path) == before
    done = recover(paths.container, limits=Limits(table_rows=ROWS))
    assert (done.samples, done.members) == (4, 12)
    assert everything(tmp_path)[getattr(paths, table).name] == before[getattr(paths, table).name]


@pytest.mark.parametrize("sealed", [False, True], ids=["finished", "all but renamed"])
def test_an_archive_over_a_limit_is_not_taken_for_a_cut_one(tmp_path, sealed):
    paths = finish(tmp_path, SAMPLES)
    with zipfile.ZipFile(paths.container, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{SEQUENCE}/{SEQUENCE}_009.lidar.pcd", bytes(1 << 21))
    if sealed:
        paths.container.rename(paths.members_partial)
    before = everything(tmp_path)
    with pytest.raises(TooLargeError, match=r"drive\.zip.*: unpacks to 2\d{6} bytes .*limits\.unpacked_bytes"):
        recover(paths.container, limits=SMALL)
    assert everything(tmp_path) == before
    assert recover(paths.container).complete
    assert set(everything(tmp_path)) == {"drive.zip", "drive.arrow", "drive.frames.arrow"}
