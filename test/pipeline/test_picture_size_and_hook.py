# SPDX-License-Identifier: Apache-2.0
"""Pictures scaled down with their camera_info, and changed by a function of the user's, through a whole conversion."""

import functools
import io
import re
import sys
import textwrap
import zipfile

import cv2
import numpy as np
import pytest
from PIL import Image

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.errors import UsageError

SMALL = {"seconds": 1, "size": (320, 180), "fps": 10.0, "topics": {"camera", "camera/info", "model/output"}}


def pictures(outcome):
    with zipfile.ZipFile(outcome.paths.container) as archive:
        return {n: archive.read(n) for n in archive.namelist() if ".camera." in n}


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def psnr(one, other):
    return 10 * np.log10(255**2 / max(np.mean((one.astype(float) - other) ** 2), 1e-9))


@pytest.fixture(scope="module")
def as_recorded(recording, tmp_path_factory):
    """Function that gives a recording of three pictures, and these as they are without options."""

    @functools.cache
    def make(codec):
        path = recording(codec=codec, **{**SMALL, "seconds": 0.3})
        return path, pictures(convert(path, tmp_path_factory.mktemp("whole"), camera_format="png"))

    return make


# ---- max_width ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("codec", "width", "size"),
    [("mono8", 160, (160, 90)), ("nv12", 101, (100, 56)), ("h264", 320, (320, 180)), ("rgb8", 4000, (320, 180))],
)
def test_wide_pictures_are_scaled_by_area(as_recorded, tmp_path, codec, width, size):
    """OpenCV's area average of the pictures of the conversion without it says what they must be."""
    path, whole = as_recorded(codec)
    scaled = convert(path, tmp_path, name="scaled", camera_format="png", max_width=width)
    assert len(whole) == 3
    for name, data in pictures(scaled).items():
        (full,) = (d for n, d in whole.items() if n.split(".")[0] == name.split(".")[0])
        found = pixels(data)
        assert found.shape == (size[1], size[0], 3)
        least = 60 if size == (320, 180) else 45
        assert psnr(found, cv2.resize(pixels(full), size, interpolation=cv2.INTER_AREA)) > least
    sample = Dataset(scaled.paths.container)[0]
    assert sample.image().shape == (size[1], size[0], 3)
    assert sample.annotations["size"][0].to_list() == list(size)


# ---- picture_hook ------------------------------------------------------------------------------
@pytest.fixture
def module(tmp_path):
    """Function that writes a module into the folder of the settings file; its name is new each time."""
    made = []

    def write(text):
        name = f"hook_{abs(hash(str(tmp_path)))}_{len(made)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('no model file')", "raised RuntimeError: no model file"),
        ("import sys; sys.exit(3)", "raised SystemExit: 3"),
        ("return picture[::2]", r"returned \(90, 320, 3\) uint8; expected \(180, 320, 3\) uint8"),
        ("return picture.astype('float32')", "float32"),
        ("return None", "returned NoneType"),
    ],
)
def test_where_it_fails_the_picture_is_lost(recording, tmp_path, module, body, why):
    name = module(f"""
        seen = []
        def sometimes(picture):
            if picture[:, :, 0].mean() % 1 > 2 or len(seen) == 4:
                seen.append(0)
                {body}
            seen.append(0)
            return picture
        """)
    config = tmp_path / "settings.yaml"
    config.write_text(f"picture_hook: {name}:sometimes\n")
    path = recording(**SMALL)
    outcome = convert(path, tmp_path, name="out", config=config)
    assert outcome.samples == 9
    assert outcome.exit_code == 3
    assert outcome.counts.plain()["/camera/h264"]["dropped"] == {"picture_hook failed": 1}
    (note,) = (note for note in outcome.notes if "picture_hook failed" in note)
    assert re.search(why, note)


@pytest.mark.parametrize(
    ("text", "hook", "what"),
    [
        (None, "no_such_module_here:blur", "no module no_such_module_here on PYTHONPATH or beside the settings file"),
        ("def blurr(p): return p", "blur", r"has no function blur; known: blurr"),
        ("import nothing_like_this", "blur", "importing .* raised ModuleNotFoundError: No module named 'nothing_like"),
        ("raise ValueError('a\\nb')", "blur", "raised ValueError: a b"),
        ("blur = 3", "blur", "has no function blur; known: none"),
    ],
)
def test_a_hook_that_is_not_there_is_an_error_at_once(recording, tmp_path, module, text, hook, what):
    name = hook if text is None else f"{module(text)}:{hook}"
    config = tmp_path / "settings.yaml"
    config.write_text(f"picture_hook: {name}\n")
    with pytest.raises(UsageError, match=what):
        convert(recording(**SMALL), tmp_path / "out", config=config)
    assert not (tmp_path / "out").exists()


def test_another_version_is_another_conversion(recording, tmp_path, module):
    """Without a version the source says which it is."""
    first, second = module("def same(p): return p\n"), module("def same(p): return p + 0\n")
    config, path = tmp_path / "settings.yaml", recording(**SMALL)
    found = []
    for name in (first, second):
        config.write_text(f"picture_hook: {name}:same\n")
        outcome = convert(path, tmp_path / name, config=config)
        found.append(Dataset(outcome.paths.container).metadata["configuration"]["picture_hook_version"])
    assert all(version.startswith("sha256:") for version in found)
    assert len(set(found)) == 2
    assert not any(str(tmp_path) in place for place in sys.path)


def test_the_command_finds_it_beside_the_settings(recording, tmp_path, module, monkeypatch, capsys):
    name = module("def dark(p): return p * 0\n")
    (tmp_path / "settings.yaml").write_text(f"picture_hook: {name}:dark\n")
    with pytest.raises(SystemExit) as done:
        app(["convert", str(recording(**SMALL)), "-o", str(tmp_path / "out"), "--config",
             str(tmp_path / "settings.yaml"), "--max-width", "64", "--json"])  # fmt: skip
    assert done.value.code == 0
    dataset = Dataset(next((tmp_path / "out").glob("*.zip")))
    assert dataset[0].image().shape == (36, 64, 3)
    assert dataset[0].image().max() < 3
