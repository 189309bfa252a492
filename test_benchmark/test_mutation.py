# SPDX-License-Identifier: Apache-2.0
"""The run of mutations: its faults are Python, differ from the source, and are the same for the same seed."""

from pathlib import Path

import pytest

FILE = Path("edgefirst_ros/sync/align.py")


@pytest.fixture
def mutation():
    import mutation

    return mutation


def test_every_fault_compiles_and_changes_its_file(mutation):
    source = (mutation.ROOT / FILE).read_bytes()
    faults = mutation.Faults(FILE).found
    assert len(faults) > 20
    for fault in faults:
        changed = fault.apply(source)
        assert changed != source
        compile(changed, str(FILE), "exec")


def test_the_same_seed_chooses_the_same_faults(mutation):
    first = mutation.choose(["sync"], 10, 7)
    assert first == mutation.choose(["sync"], 10, 7)
    assert first != mutation.choose(["sync"], 10, 8)
    assert len({(fault.file, fault.line) for fault in first}) == 10


@pytest.mark.parametrize(
    ("file", "function", "tests", "most"),
    [
        (FILE, "_forget", "test/sync/test_align.py", 1),
        (Path("edgefirst_ros/pipeline/rig_draft.py"), "draft_rig", "test/matrix/test_rigs.py", 12),
        (Path("edgefirst_ros/dataset/reader.py"), "is_several", "test/dataset/objects/test_several.py", 12),
    ],
)
def test_the_tests_of_a_module_are_chosen_wherever_they_are(mutation, file, function, tests, most):
    fault = next(one for one in mutation.Faults(file).found if f"def {function}(" in mutation.read_function(one))
    assert tests in mutation.select_tests(fault, mutation.Likeness(), most)
