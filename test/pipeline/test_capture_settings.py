# SPDX-License-Identifier: Apache-2.0
"""Settings of a capture from one file and from options."""

import pytest

from edgefirst_ros.errors import UsageError
from edgefirst_ros.pipeline.capture_session import load_capture


def test_one_file_has_both_kinds_and_options_go_before_it(tmp_path):
    path = tmp_path / "capture.yaml"
    path.write_text("rate: 5\nout: drives\nsequence: first\nautostart: false\n")
    settings, live = load_capture(path, {"sequence": "second", "max_width": "640"})
    assert (settings.rate, settings.max_width) == (5.0, 640)
    assert (live.out, live.sequence, live.autostart, live.depth) == ("drives", "second", False, 100)


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb"])
def test_a_sequence_whose_name_is_no_name_of_a_file_is_refused(name):
    with pytest.raises(UsageError, match=r"^sequence: "):
        load_capture(None, {"sequence": name})


def test_what_is_wrong_is_named_with_where_it_was_said(tmp_path):
    path = tmp_path / "capture.yaml"
    path.write_text("depth: 0\n")
    with pytest.raises(UsageError, match=rf"{path}: depth: expected a whole number at least 1"):
        load_capture(path)
    with pytest.raises(UsageError, match="options: keep: expected"):
        load_capture(None, {"keep": "perhaps"})
