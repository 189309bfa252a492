# SPDX-License-Identifier: Apache-2.0
"""The properties that the tests state, with examples that `make test` does not have."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def search(seeds: range, jobs: int) -> list[int]:
    """Run the tests of properties once for each seed; returns the seeds with which one failed, which pytest prints."""
    command = [sys.executable, "-m", "pytest", "test", "-m", "hypothesis", "-n", str(jobs)]
    failed = []
    for seed in seeds:
        chosen = ["--hypothesis-profile=search", f"--hypothesis-seed={seed}"]
        if subprocess.run([*command, *chosen], cwd=ROOT, check=False).returncode:
            failed.append(seed)
    return failed
