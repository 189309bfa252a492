# SPDX-License-Identifier: Apache-2.0
"""Limits of tables, set where datasets are read."""

import handmade_dataset as made
import polars as pl


def test_a_limit_that_refuses_says_how_it_is_set(tmp_path, run):
    dataset = made.write(tmp_path, made.good())
    count = (1 << 19) + 1
    table = pl.DataFrame({"name": pl.repeat(made.SEQUENCE, count, eager=True), "label": "car", "frame": 3})
    table.write_ipc(tmp_path / "data.arrow", compression="zstd")
    for verb in (["info"], ["merge", "-o", tmp_path / "out"], ["export", "--to", "roverd", "-o", tmp_path / "out"],
                 ["recover"]):  # fmt: skip
        done = run(verb[0], dataset, *verb[1:])
        assert (done.returncode, "raise the setting limits.table_rows" in done.stderr) == (1, True), done.stderr
    done = run("validate", dataset)
    assert "raise the setting limits.table_rows" in done.stdout
    done = run("info", dataset, "--set", "limits.table_rows=1000000")
    assert (done.returncode, "car" in done.stdout) == (0, True)
    done = run("recover", dataset, "--set", "limits.table_rows=1000000")
    assert (done.returncode, "is complete" in done.stdout) == (0, True), done.stderr
    done = run("import", tmp_path, "--from", "roverd", "-o", tmp_path / "out", "--set", "limits.unpacked_bytes=1")
    assert (done.returncode, "limits.unpacked_bytes" in done.stderr) == (2, True)
    done = run("info", dataset, "--set", "limits.cloud_points=1")
    assert (done.returncode, "expected one of limits.table_rows, limits.unpacked_bytes" in done.stderr) == (2, True)
