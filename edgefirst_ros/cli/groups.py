# SPDX-License-Identifier: Apache-2.0
"""Prints the counts of groups as a table, and makes the group rule from options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from edgefirst_ros.cli.options import texts_of
from edgefirst_ros.cli.text import say, table
from edgefirst_ros.errors import counted

if TYPE_CHECKING:
    from edgefirst_ros.dataset.grouping import GroupRule
    from edgefirst_ros.dataset.regroup import GroupCounts


def rule_of(context: typer.Context, assignments: Sequence[str] | None) -> GroupRule | None:
    """Return the group rule given by options and --set, or None without any. Raises UsageError."""
    from edgefirst_ros.config_file import load
    from edgefirst_ros.dataset.grouping import GroupRule

    return GroupRule.of(load(None, texts=texts_of(context, assignments or ())))


def print_groups(counts: GroupCounts) -> None:
    """Print a table of the groups: samples, sensors and labels of each."""
    rows = [
        (f"{kind.what} {kind.name}".rstrip(), *(str(tally.get(kind, 0)) for tally in counts.groups.values()))
        for kind in counts.kinds
    ]
    table(("group", *counts.groups), rows)
    if counts.without:
        say(f"without a group: {counted(counts.without, 'sample')}")
