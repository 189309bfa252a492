# SPDX-License-Identifier: Apache-2.0
"""Whether the tests notice faults: one-line faults, put into the package at random, one at a time.

    python benchmark/mutation.py [--faults 100] [--seed 1] [--processes 2] [--files 12] [--list]
                                 [--only FILE:LINE] [--packages sources sync sensors pipeline dataset export]

Each fault is put into a copy of the project: a comparison the other way round, a condition or a `not` dropped, a number
one too large, True for False, plus for minus, a call left out. The nearest tests run on the copy up to the first
failure: the module's own, those that import it, those with the words of it. Survivors are printed as a diff, to be
judged one by one: some change nothing. Exit code 1 when fewer than 85 % were noticed. Same sources and seed: same
faults.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "edgefirst_ros"
WANTED = 0.85
MEMORY = 6 << 30
"""Most bytes of data of a process of the tests."""
HANG = 300
"""Seconds after which tests that have not ended hang."""
PACKAGES = ("sources", "sync", "sensors", "pipeline", "dataset", "export")
ALWAYS = ("test/pipeline/test_conversion.py", "test/pipeline/test_capture_states.py", "test/dataset/test_reader.py")
NEAR = 0.05
"""Likeness that tests have more in the mirrored folder, and more if they import the module or always run."""
SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A piece of a file and what stands there instead."""

    file: Path
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def describe(self) -> str:
        source = (ROOT / self.file).read_bytes()
        begin = source.rfind(b"\n", 0, self.start) + 1
        old = source[begin : source.find(b"\n", self.end)].decode()
        new = self.apply(source)[begin : source.find(b"\n", self.end) + len(self.text.encode()) - self.end + self.start]
        return f"{self.file}:{self.line}\n    - {old.strip()}\n    + {new.decode().strip()}"


class Faults(ast.NodeVisitor):
    """Collects the faults that one file can have."""

    def __init__(self, file: Path) -> None:
        self._file, self._source = file, (ROOT / file).read_bytes()
        self._lines = [0]
        for line in self._source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.found: list[Fault] = []
        self.visit(ast.parse(self._source))

    def _place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        start, end = self._place(node)
        return self._source[start:end].decode()

    def _add(self, node: ast.expr | ast.stmt, text: str) -> None:
        start, end = self._place(node)
        self.found.append(Fault(self._file, node.lineno, start, end, text))

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            other = SWAPS[type(node.ops[0])]
            self._add(node, f"({self._text(node.left)}) {other} ({self._text(node.comparators[0])})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " and " if isinstance(node.op, ast.And) else " or "
        for index in range(len(node.values)):
            rest = [f"({self._text(value)})" for place, value in enumerate(node.values) if place != index]
            self._add(node, f"({word.join(rest)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = {ast.Add: "-", ast.Sub: "+", ast.FloorDiv: "*", ast.Mult: "//"}.get(type(node.op))
        if other and not any(isinstance(side, ast.Constant | ast.JoinedStr) for side in (node.left, node.right)):
            self._add(node, f"(({self._text(node.left)}) {other} ({self._text(node.right)}))")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, str(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if self._text(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """The words of an error are no behaviour."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)


def choose(packages: list[str], number: int, seed: int) -> list[Fault]:
    """A random sample of the faults that these packages can have, each line at most once."""
    files = sorted(path for package in packages for path in (ROOT / PACKAGE / package).rglob("*.py"))
    every = [fault for path in files for fault in Faults(path.relative_to(ROOT)).found]
    random.Random(seed).shuffle(every)
    chosen: dict[tuple[Path, int], Fault] = {}
    for fault in every:
        if len(chosen) < number:
            chosen.setdefault((fault.file, fault.line), fault)
    return list(chosen.values())


class Likeness:
    """How much the words of a text are those of each test file; words of few files count more."""

    def __init__(self) -> None:
        paths = [path for path in (ROOT / "test").rglob("test_*.py") if path.parent != ROOT / "test"]  # rules apart
        self.texts = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(paths)}
        self._words = {name: find_words(f"{name} {text}") for name, text in self.texts.items()}
        self._files = Counter(word for words in self._words.values() for word in words)

    def of(self, text: str) -> dict[str, float]:
        """Return the cosine of the words' angle to those of each test file, 0 to 1."""
        own = find_words(text)
        return {
            name: self._weigh(own & words) / math.sqrt(self._weigh(own) * self._weigh(words) or 1)
            for name, words in self._words.items()
        }

    def _weigh(self, words: set[str]) -> float:
        return sum(math.log(len(self._words) / self._files[word]) ** 2 for word in words if word in self._files)


def find_words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def read_function(fault: Fault) -> str:
    """Return the innermost function that the fault is in, as text; an empty text outside of functions."""
    text = (ROOT / fault.file).read_text()
    found = ""
    for node in ast.walk(ast.parse(text)):  # those inside come after those around them
        if isinstance(node, ast.FunctionDef) and node.lineno <= fault.line <= (node.end_lineno or 0):
            found = ast.get_source_segment(text, node) or ""
    return found


def select_tests(fault: Fault, likeness: Likeness, most: int | None = None) -> list[str]:
    """Choose test files for a fault: the module's own, those that import it, and those with words of it, in turn."""
    file = fault.file
    folder, inside = ".".join(file.parent.parts), Path("test", *file.parts[1:-1])
    imports = re.compile(rf"{re.escape(folder)}\.{file.stem}\b|from {re.escape(folder)} import [^\n]*\b{file.stem}\b")
    while not (ROOT / inside).exists():
        inside = inside.parent
    by_module = likeness.of(f"{file} {(ROOT / file).read_text()}")
    by_function = likeness.of(f"{file} {read_function(fault)}")
    ranks = {}
    for name, text in likeness.texts.items():
        mirrored, importing = Path(name).parent == inside, imports.search(text) is not None
        own = mirrored and file.stem.partition("_")[0] in Path(name).stem
        near = NEAR * (mirrored + (importing or name in ALWAYS))
        ranks[name] = (not own, -near - by_module[name] - by_function[name])
    return sorted(ranks, key=lambda name: (ranks[name], name))[:most]


def find_noticing(fault: Fault, copy: Path, likeness: Likeness, most: int) -> str:
    """Return the test that fails with the fault, or an empty text; a test that fails without it too does not count."""
    original = (copy / fault.file).read_bytes()
    tests, left_out = select_tests(fault, likeness, most), list[str]()
    while True:
        (copy / fault.file).write_bytes(fault.apply(original))
        try:  # a broken import ends with 1
            returned, output = run_tests(copy, "--continue-on-collection-errors", *left_out, *tests)
        finally:
            (copy / fault.file).write_bytes(original)
        if returned == 0:
            return ""
        if returned is not None and returned > 1:
            sys.exit(f"pytest ended with {returned} for {fault.file}:{fault.line}: {output[-500:]}")
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        failed = found[1] if found else ""
        if run_tests(copy, *([failed] if failed else [*left_out, *tests]))[0] == 0:
            return failed or ("a hang" if returned is None else "a crash")
        if not failed or f"--deselect={failed}" in left_out:
            sys.exit(f"{failed or tests} fails or hangs without {fault.file}:{fault.line} too")
        left_out.append(f"--deselect={failed}")


def run_tests(copy: Path, *arguments: str) -> tuple[int | None, str]:
    """Run pytest in a copy; the exit code is None after a hang, whose processes are ended, negative after a crash."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        run = subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=log, start_new_session=True)
        resource.prlimit(run.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        try:
            returned = run.wait(HANG)
        except subprocess.TimeoutExpired:
            returned = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        log.seek(0)
        return returned, log.read()


def make_copies(number: int, folder: Path) -> Iterator[Path]:
    ignored = shutil.ignore_patterns(".git", ".venv*", "demo", ".cache", "__pycache__", ".mypy_cache", ".ruff_cache")
    for index in range(number):
        copy = Path(shutil.copytree(ROOT, folder / str(index), ignore=ignored))
        compileall.compile_dir(copy / PACKAGE, quiet=1)  # a fault has another time: only its file is compiled again
        yield copy


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--files", type=int, default=12, help="at most so many test files for a fault")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    parser.add_argument("--only", help="the faults of one line: FILE:LINE")
    given = parser.parse_args()
    faults = choose(given.packages, 10**9 if given.only else given.faults, given.seed)
    if given.only:
        faults = [fault for fault in faults if f"{fault.file}:{fault.line}" == given.only]
    if given.list:
        print("\n".join(fault.describe() for fault in faults))
        return 0
    survivors, copies, likeness = 0, SimpleQueue[Path](), Likeness()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as pool:
        Path(folder).chmod(0o755)  # some tests run the copy as another user
        for copy in make_copies(given.processes, Path(folder)):
            copies.put(copy)

        def judge(fault: Fault) -> tuple[Fault, str]:
            copy = copies.get()
            try:
                return fault, find_noticing(fault, copy, likeness, given.files)
            finally:
                copies.put(copy)

        for index, (fault, test) in enumerate(pool.map(judge, faults), 1):
            survivors += not test
            found = f"noticed  {fault.file}:{fault.line} by {test}" if test else f"SURVIVED {fault.describe()}"
            print(f"{index:4} {found}", flush=True)
    noticed = 1 - survivors / max(1, len(faults))
    print(f"{len(faults)} faults, {survivors} survived: {noticed:.0%} noticed (wanted {WANTED:.0%})")
    return 0 if noticed >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
