# SPDX-License-Identifier: Apache-2.0
"""By what a dataset says which code has changed its pictures."""

import hashlib
import platform
import zipfile

import pytest

from edgefirst_ros.sensors.picture_hook import load_hook

SOURCE = "def change(picture):\n    return picture\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_module_with_a_version_says_it(place):
    (place / "hook_with_version.py").write_text(f"__version__ = '2.1'\n{SOURCE}")
    assert load_hook("hook_with_version:change").version == "2.1"


def test_of_another_the_source_is_hashed(place):
    (place / "hook_of_a_file.py").write_text(SOURCE)
    expected = hashlib.sha256(SOURCE.encode()).hexdigest()[:16]
    assert load_hook("hook_of_a_file:change").version == f"sha256:{expected}"


def test_where_there_is_no_file_of_its_own_the_version_is_that_of_python(place, monkeypatch):
    archive = place / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("hook_of_an_archive.py", SOURCE)
    monkeypatch.syspath_prepend(archive)
    assert load_hook("hook_of_an_archive:change").version == f"python {platform.python_version()}"
