# SPDX-License-Identifier: Apache-2.0
"""Makes report.png, sheet.png and space.png: the top of a report, its contact sheet, and the viewer.

python docs/tools/pictures.py [FOLDER]      needs chromium and the extras report, view and test; `make pictures` runs it
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from edgefirst_ros import convert
from edgefirst_ros.report.run import report
from edgefirst_ros.synthetic import Recipe, write_recording

ARGUMENTS = (
    "--headless --no-sandbox --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SOFTWARE = "--use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader --ignore-gpu-blocklist"
"""Draws the viewer without a graphics card."""
SIZE = {"width": 1180, "height": 760}
COLOURS = 96
VIEWS = {"x": 200, "y": 36, "width": 980, "height": 355}
"""Camera and space in the viewer; the map below has no tiles without a network."""
WAIT = 4000
"""ms between two looks at the viewer: nothing says when it has drawn everything."""
LOOKS, DRAWN = 30, 100_000
"""Most looks, and bytes of a picture that is not empty."""


def picture(content: bytes, target: Path) -> None:
    """Write a picture in few colours, so that it stays small."""
    with Image.open(io.BytesIO(content)) as found:
        small = found.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(target, optimize=True)


@contextmanager
def browser(more: str = "--disable-gpu", scheme: str = "light") -> Iterator[object]:
    """A page of Debian's chromium, from which no request leaves this machine."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is missing: apt-get install chromium")
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=[*ARGUMENTS.split(), *more.split()])
        page = opened.new_page(viewport=SIZE, color_scheme=scheme)
        page.route("**/*", lambda route: route.continue_() if is_here(route.request.url) else route.abort())
        yield page
        opened.close()


def is_here(url: str) -> bool:
    """Whether a request stays on this machine."""
    return url.startswith(("file:", "data:", "blob:", "http://127.0.0.1"))


def of_page(path: Path, out: Path) -> None:
    """The top of a page, and four samples of its contact sheet."""
    with browser() as page:
        page.goto(path.as_uri())
        picture(page.screenshot(), out / "report.png")
        page.evaluate("document.querySelectorAll('.shot').forEach((one, n) => { if (n > 1) one.remove() })")
        picture(page.locator("#samples").screenshot(), out / "sheet.png")


def of_viewer(dataset: Path, out: Path) -> None:
    """The viewer, once it has drawn everything."""
    only = "camera,lidar.points,radar.targets,model"
    line = [sys.executable, "-m", "edgefirst_ros", "view", os.fspath(dataset), "--web", "--only", only]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as viewing:
        try:
            address = viewing.stdout.readline().strip()
            with browser(SOFTWARE, "dark") as page:  # its labels cannot be read on a light ground
                page.wait_for_timeout(WAIT)  # it listens
                page.goto(f"{address}&renderer=webgl", wait_until="commit")
                before = content = b""
                for _ in range(LOOKS):
                    page.wait_for_timeout(WAIT)
                    before, content = content, page.screenshot(timeout=60_000, clip=VIEWS)
                    if content == before and len(content) > DRAWN:
                        break
                picture(content, out / "space.png")
        finally:
            viewing.send_signal(signal.SIGTERM)


def main() -> None:
    """Write the pictures."""
    out = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "img"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that no page shows where that is
        recording = Path("maivin-demo_2026_01_15_12_00_00.mcap")
        write_recording(recording, Recipe(seconds=6, size=(640, 360), lidar_points=8000, objects=5, scene="street"))
        dataset = Path("out", convert(recording, "out").paths.container.name)
        of_page(report([dataset]).pages[0].resolve(), out)
        of_viewer(dataset, out)


if __name__ == "__main__":
    main()
