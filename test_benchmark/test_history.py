# SPDX-License-Identifier: Apache-2.0
"""Ratios of benchmark runs that are kept: what is told as worse, and that all are drawn."""

import pytest


@pytest.fixture
def history():
    from suite import history

    return history


@pytest.fixture
def line():
    from suite.table import Line

    return Line


def run(history, lines, **other):
    return history.entry(lines, 3) | {"commit": "now"} | other


def test_what_became_worse_on_this_kind_of_machine_is_told(history, line):
    before = [
        run(history, [line("a", ratios=(1.0, 1.1, 1.2), at_most=2), line("b", ratios=(2.0, 2.1, 2.2), at_least=1)]),
        run(history, [line("a", ratios=(0.1, 0.1, 0.1))], machine="another"),
    ]

    def told(what, ratios, **bar):
        lines = [line(what, ratios=ratios, **bar)]
        return history.regressions(before, run(history, lines), lines)

    assert told("a", (1.3, 1.4, 1.5)) == ["a: 1.1 at now, now 1.4"]
    assert told("a", (1.15, 1.4, 1.5)) == []  # the ranges meet
    assert told("a", (1.21, 1.205, 1.205)) == []  # within a tenth
    assert told("a", (0.5, 0.6, 0.7)) == []
    assert told("b", (1.0, 1.1, 1.9), at_least=1) == ["b: 2.1 at now, now 1.1"]
    assert told("b", (3.0, 3.1, 3.2), at_least=1) == []
    assert told("c", (9.0, 9.0, 9.0)) == []


def test_two_lines_of_one_name_are_refused(history, line):
    with pytest.raises(ValueError, match="two lines are called 'a': the first would be lost"):
        history.entry([line("a", ratios=(1.0,)), line("a", ratios=(2.0,))], 1)


def test_ratios_alone_are_kept_and_drawn(history, line, tmp_path):
    pytest.importorskip("plotly")
    lines = [line("a <b>", ratios=(1.0, 3.0, 2.0)), line("s", ratios=(0.1,), unit=" s"), line("told", note="no")]
    runs = [run(history, lines), run(history, lines, machine="another")]
    assert runs[0]["ratios"] == {"a <b>": [2.0, 1.0, 3.0]}
    history.write(runs, tmp_path / "history.json")
    assert history.read(tmp_path / "history.json") == runs
    assert history.read(tmp_path / "none.json") == []
    assert len((tmp_path / "history.json").read_text().splitlines()) == 4
    page = history.page(runs)
    assert page.count('class="plotly-graph-div"') == 1
    assert page.count('"name":"another"') == 1
