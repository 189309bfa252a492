# SPDX-License-Identifier: Apache-2.0
"""Pages in a real browser: nothing is asked for, everything is drawn, and it fits any screen."""

import json
import os
import time

import numpy as np
import polars as pl
import pyarrow.ipc
import pytest
from shared_data import REAL

import edgefirst_ros
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.report.run import report
from edgefirst_ros.synthetic import DEFAULT_TOPICS, Recipe, write_recording

SMALL = {"seconds": 2, "size": (320, 192), "cube_shape": (1, 32, 2, 32), "lidar_points": 200}
ONLY_CAMERA = {"camera"}
NO_CAMERA = DEFAULT_TOPICS - {"camera", "camera/info", "model/output", "model/info"}
EVIL = (
    "</script><script>window.evil=1</script>",
    "<b onmouseover=window.evil=2>car</b>",
    "{{ 7*7 }}&lt;\u202e\u2028'\"",
)
WIDTHS = (320, 768, 1600)
FITS = """() => ({
  sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  figures: [...document.querySelectorAll('.plot')].map(p => [p.id, (p.data || []).length,
    p.querySelectorAll('.main-svg').length,
    p.querySelectorAll('.trace, .bars, .heatmaplayer image, .hm image').length]),
  cut: [...document.querySelectorAll(innerWidth < 480 ? '.cards td, .phone td' : '.cards td')].filter(
    t => t.getBoundingClientRect().right > t.closest('.scroll').getBoundingClientRect().right + 1).length,
  empty: [...document.querySelectorAll('.figures')].map(f => {
    const boxes = [...f.children].map(c => c.getBoundingClientRect()), tops = boxes.map(b => b.top);
    return Math.min(...tops.map(top => boxes.filter(b => b.top === top).reduce((sum, b) => sum + b.width, 0)))
      / f.clientWidth; }),
  pictures: [...document.images].map(i => i.naturalWidth),
  text: document.body.innerText, evil: window.evil === undefined ? null : window.evil})"""
DARK = """() => [...document.querySelectorAll('.plot .xtitle')].every(
  t => getComputedStyle(t).fill === getComputedStyle(document.body).color)"""
CONTRAST = """() => {
  const rgb = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const lin = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const lum = c => { const [r, g, b] = c.slice(0, 3).map(lin);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || ['SCRIPT', 'NOSCRIPT'].includes(e.tagName)) continue;
    const style = getComputedStyle(e), svg = e.closest('svg');
    const a = lum(rgb(svg ? style.fill : style.color)), b = lum(ground(svg ? svg.parentElement : e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([ratio.toFixed(2), e.tagName, walk.currentNode.data.slice(0, 30)]);
  }
  return found.slice(0, 5); }"""


SETTLED = """() => [...document.querySelectorAll('.plot')].every(
  p => Math.abs(p.querySelector('.main-svg').getBoundingClientRect().width - p.clientWidth) < 2)"""


@pytest.fixture(scope="module")
def shown(browser):
    """Function that opens a page, makes it wider, then dark, and returns what was found; its faults fail the test."""

    def show(path):
        context = browser.new_context(color_scheme="light", viewport={"width": WIDTHS[0], "height": 600})
        page, wrong, asked = context.new_page(), [], []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        began = time.monotonic()
        page.goto(path.as_uri())
        took = time.monotonic() - began
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 600})
            page.wait_for_function(SETTLED)
            state = page.evaluate(FITS)
            assert state["sideways"] <= 0, f"{width} px wide"
            assert state["cut"] == 0, f"columns that a screen of {width} px does not show"
            assert "not supported" not in state["text"]
            assert all(traces and svgs and drawn for _, traces, svgs, drawn in state["figures"]), state["figures"]
            assert all(used > 0.95 for used in state["empty"]), "figures that leave a part of the page empty"
            assert all(state["pictures"])
            assert state["evil"] is None
        assert page.evaluate(CONTRAST) == []
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(DARK)
        assert page.evaluate(CONTRAST) == []
        context.close()
        assert wrong == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        size, figures = path.stat().st_size / 1e6, len(state["figures"])
        assert size < 7
        print(f"{path.name}: {size:.2f} MB, {figures} figures, {took:.2f} s")
        return state

    return show


def made(folder, name, **options):
    path = folder / f"{name}.mcap"
    write_recording(path, Recipe(**{**SMALL, **options}))
    return path


def test_the_demo_has_everything(shown, run, tmp_path):
    assert run("demo", "-o", "demo", "--seconds", "2").returncode == 0
    (dataset,) = (tmp_path / "demo").glob("*.zip")
    state = shown(report([dataset], samples=6).pages[0])
    assert len(state["figures"]) >= 13
    assert len(state["pictures"]) == 12


def test_a_picture_is_as_large_as_it_is_where_a_finger_is(browser, tmp_path):
    """On a phone the labels in it are too small to read otherwise."""
    dataset = edgefirst_ros.convert(made(tmp_path, "touched", size=(640, 384)), tmp_path).paths.container
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 600}, has_touch=True)
    page = context.new_page()
    page.goto(report([dataset], samples=1).pages[0].as_uri())
    widths = "() => [document.querySelector('.cam').clientWidth, document.documentElement.scrollWidth]"
    small, whole = page.evaluate(widths)
    page.tap(".cam")
    assert (page.evaluate(widths), small < whole) == ([640, whole], True)
    page.tap("h1")
    assert page.evaluate(widths) == [small, whole]
    context.close()


def test_a_real_recording(shown, tmp_path):
    found = [path for path in REAL if path.name.startswith("verdin")]
    if not found:
        pytest.skip("no real recordings are at hand")
    state = shown(report(found, tmp_path / "verdin.html", samples=4).pages[0])
    assert len(state["pictures"]) == 8
    assert "identity" in state["text"]


def test_a_dataset_without_camera(shown, tmp_path):
    path = made(tmp_path, "radar", topics=NO_CAMERA)
    dataset = edgefirst_ros.convert(path, tmp_path, reference_topic="radar/targets").paths.container
    state = shown(report([dataset], samples=3).pages[0])
    assert "camera_info is missing" in state["text"]
    assert len(state["pictures"]) == 3  # from above


COVERED = """() => [...document.querySelectorAll('.plot')].flatMap(plot => {
  const boxes = [...plot.querySelectorAll('.annotation-text-g')].map(g => g.getBoundingClientRect());
  return boxes.filter((b, n) => b.right > plot.getBoundingClientRect().right || boxes.slice(n + 1).some(
    c => c.left < b.right && b.left < c.right)).map(() => plot.id); })"""
NAMED = """() => [...document.querySelectorAll('#figure-intervals .annotation-text-g')].map(g => g.textContent)"""


def test_names_of_drives_do_not_cover_each_other_in_any_figure(browser, tmp_path):
    names = ["a-drive-of-a-host-with-a-long-name_2026", "a-short-drive_2026", "b-drive-of-a-host-with-a-long-name_2026"]
    paths = [made(tmp_path, name, seconds=seconds) for name, seconds in zip(names, (4, 0.5, 3), strict=True)]
    dataset = edgefirst_ros.convert(paths, tmp_path, name="drives").paths.container
    page = browser.new_context(viewport={"width": 1600, "height": 600}).new_page()
    page.goto(report([dataset], samples=1).pages[0].as_uri())
    for width, seen in ((1600, [names[0], names[2]]), (320, []), (768, [names[0]]), (1600, [names[0], names[2]])):
        page.set_viewport_size({"width": width, "height": 600})
        page.wait_for_function(SETTLED)
        page.wait_for_function(f"() => JSON.stringify(({NAMED})()) === '{json.dumps(seen, separators=(',', ':'))}'")
        assert page.evaluate(COVERED) == [], width
    used = "() => [...document.querySelectorAll('.plot')].map(p => (p.layout.xaxis.title || {}).text === "
    used += "'time of drive, s' ? p.layout.xaxis.range[1] : 0)"
    assert max(page.evaluate(used)) < 8
    page.context.close()


def test_an_hour(shown, tmp_path):
    """Stamps of an hour at 10 Hz; members are those of two seconds."""
    topics = {"camera", "radar/targets", "model/output", "model/info", "gps"}
    paths = edgefirst_ros.convert(made(tmp_path, "hour", topics=topics, fps=10.0), tmp_path).paths
    frames = pyarrow.ipc.open_file(paths.frames).read_all()
    metadata, table = frames.schema.metadata, pl.from_arrow(frames)
    turns = pl.DataFrame({"turn": range(1800)}, schema={"turn": pl.Int64})
    stamps = [name for name in table.columns if name.endswith("timestamp")]
    hour = turns.join(table, how="cross").with_columns(
        pl.col("frame") + (pl.col("turn") * len(table)).cast(pl.UInt32),
        *(pl.col(name) + pl.col("turn") * 2_000_000_000 for name in stamps),
        latitude=pl.col("latitude") + pl.col("turn") * 1e-4,
    )
    whole = hour.drop("turn").to_arrow().cast(frames.schema).replace_schema_metadata(metadata)
    with pyarrow.ipc.new_file(paths.frames, whole.schema) as writer:
        writer.write_table(whole)
    done = report([paths.container], samples=3)
    assert (done.facts[0]["samples"], round(done.facts[0]["duration_s"])) == (36_000, 3600)
    state = shown(done.pages[0])
    assert "Thinned: of " in state["text"]


def test_hostile_names_do_nothing(shown, tmp_path):
    labels = list(EVIL)
    rng = np.random.default_rng(0)
    with DatasetWriter(tmp_path, "evil") as writer:
        for frame in range(12):
            rows = [{"label": label, "box2d": [0.5, 0.5, 0.2, 0.2], "group": EVIL[0]} for label in labels]
            writer.write(NewSample("seq", frame, 1_700_000_000_000_000_000 + frame * 33_333_333,
                                [("camera.jpeg", [picture(rng)])], {"segment": 0, "keyframe": True}, rows))  # fmt: skip
        evil = EVIL[0] + EVIL[1]
        counts = {f"/{evil}": {"seen": 3, "written": 1, "dropped": {evil: 2}}}
        k = [50.0, 0, 32, 0, 50, 24, 0, 0, 1]
        info = {"frame_id": evil, "width": 64, "height": 48, "distortion_model": evil, "d": [], "k": k}
        info |= {"r": [0.0] * 9, "p": [0.0] * 12}
        writer.finish(
            {
                "sources": [{"file": evil, "size": 1, "sha256": evil, "damage": [{"offset": 0, "what": evil}]}],
                "configuration": {"tolerance": evil, evil: evil},
                "software": {"name": evil, "version": evil},
                "time_base": {"base": evil, "topics": {evil: evil}},
                "camera_info": info,
                "static_transforms": [],
                "counts": counts,
            },
            labels,
        )
    page = report([tmp_path / "evil.zip"], title=EVIL[0], samples=2).pages[0]
    state = shown(page)
    assert EVIL[0] in state["text"]
    shown_labels = pl.read_ipc(tmp_path / "evil.arrow")["label"].cast(str).unique().to_list()
    assert sorted(shown_labels) == sorted(labels)
    assert EVIL[1] in state["text"] or "<b onmouseover" in state["text"]  # as it reads, in an axis
    table = report([tmp_path], tmp_path / "table.html", title=EVIL[0], overwrite=True, table_only=True).table
    shown(table)


def picture(rng):
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (48, 64, 3), np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


def test_a_table_over_several_and_a_page_of_only_a_camera(shown, tmp_path):
    path = made(tmp_path, "one", topics=ONLY_CAMERA)
    dataset = edgefirst_ros.convert(path, tmp_path).paths.container
    quick = report([tmp_path], tmp_path / "quick.html", table_only=True).table.read_text()
    assert "radar.cube" not in quick, "a sensor that no drive has"
    made(tmp_path, "without_any_picture_2026_01_15_12_00_00", topics={"imu", "gps"})
    done = report([tmp_path], tmp_path / "out" / "table.html", samples=1)
    state = shown(done.table)
    assert len(done.pages) == 2
    assert "3 in all: 1 red" in state["text"]
    assert "no camera topic" in state["text"]
    assert os.listdir(tmp_path / "out") != []
    state = shown(report([dataset], tmp_path / "page.html", samples=3).pages[0])
    assert len(state["pictures"]) == 3
    for said in ("Only the camera has stamps", "No positions", "No radar and no lidar"):
        assert said in state["text"]
