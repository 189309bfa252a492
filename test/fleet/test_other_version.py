# SPDX-License-Identifier: Apache-2.0
"""Workers that have another version than the command, and such as die of everything."""

import pytest
from fleet_tasks import Here

from edgefirst_ros import __version__
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.fleet import datasets as each
from edgefirst_ros.fleet.converting import Conversion
from edgefirst_ros.fleet.datasets import FleetDataset
from edgefirst_ros.fleet.state import Layout, Location


class Older(Here):
    """An engine whose workers have version 0.0.9."""

    def submit(self, task):
        asked = task._replace(arguments=task.arguments | {"software": "0.0.9"})
        record = asked.function(asked.arguments)
        assert record["software"] == __version__
        self._done.append((task, record | {"software": "0.0.9"}))


class Dying(Here):
    """An engine whose workers die of everything; `before` is done meanwhile."""

    def __init__(self, before):
        super().__init__()
        self._before = before

    def submit(self, task):
        self._before()
        self._done.append((task, {"verdict": "crashed", "error": "workers died of it"}))


WANTED = rf"a worker has edgefirst_ros 0\.0\.9, this is {__version__}: install the same version on all"


def test_a_conversion_ends_and_nothing_is_written_of_the_recording(drives, tmp_path):
    conversion = Conversion([str(drives / "day1.mcap")], str(tmp_path / "sets"), Settings(rate=5))
    with pytest.raises(EdgeFirstError, match=WANTED):
        conversion.run(Older(), lambda tally: None)
    assert conversion.tally.verdicts == {"not done": 1}
    assert not [*tmp_path.glob("sets/_state/*/*")]


def test_work_on_each_dataset_ends(tmp_path):
    layout = Layout(Location.of(tmp_path / "sets"))
    datasets = [FleetDataset("day1", "s", [{"key": "day1.zip", "bytes": 1, "etag": ""}], 1, 1)]
    found = each.run_each(Older(), each.validate_one, layout, datasets, lambda *_: None, strict=False, scratch=None)
    with pytest.raises(EdgeFirstError, match=WANTED):
        next(found)


def test_a_state_that_cannot_be_written_is_noted_and_the_verdict_stands(drives, tmp_path):
    """A file lies where the folder of states should be."""
    states, notes = tmp_path / "sets" / "_state", []
    conversion = Conversion([str(drives / "day1.mcap")], str(tmp_path / "sets"), Settings(rate=5), note=notes.append)
    tally = conversion.run(Dying(states.touch), lambda tally: None)
    assert (tally.verdicts, tally.exit_code) == ({"crashed": 1}, 1)
    assert tally.failures == [(str(drives / "day1.mcap"), "crashed", "workers died of it")]
    assert notes[0].startswith(f"{drives / 'day1.mcap'}: its state could not be written: ")
