# SPDX-License-Identifier: Apache-2.0
"""Every stage whose instructions are counted still runs, with what the package is today."""

import pytest

SMALLER = 5
"""Part of the width and height of the pictures: what runs is the same."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    from budgeting import inputs

    folder = tmp_path_factory.mktemp("inputs")
    videos = {
        name: (codec, width // SMALLER, height // SMALLER) for name, (codec, width, height) in inputs.VIDEOS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "VIDEOS", videos)
        inputs.make(folder)
    return folder


def test_every_stage_that_is_counted_runs(inputs):
    from budgeting.stages import STAGES, work_of

    ran = []
    for name, work in work_of(inputs).items():
        work(1)
        ran.append(name)
    assert ran == list(STAGES)
    assert len(list(inputs.glob("out*/*.zip"))) == 1, "the conversion wrote a dataset"
