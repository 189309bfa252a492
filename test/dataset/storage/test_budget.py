# SPDX-License-Identifier: Apache-2.0
"""Sums of what comes out of files and imports."""

import pytest

from edgefirst_ros.errors import DatasetError, TooLargeError
from edgefirst_ros.limits import Budget, Limits

FREE = 64 << 20


def test_an_import_has_one_budget_for_all_its_files(tmp_path):
    limits = Limits(unpacked_bytes=FREE)
    budget = Budget.of_import(tmp_path, 10, limits)
    budget.spend(unpacked=FREE)
    with pytest.raises(
        TooLargeError,
        match=f"unpacks to {FREE + 1} bytes or more, more than {FREE} .raise the setting limits.unpacked_bytes",
    ):
        budget.spend(unpacked=1)
    large = Budget.of_import(tmp_path, FREE, limits)
    for _ in range(100):
        large.spend(unpacked=FREE)
    with pytest.raises(TooLargeError, match="100 times the"):
        large.spend(unpacked=1)


def test_a_file_has_rows_values_and_bytes(tmp_path):
    limits = Limits(table_rows=1000, unpacked_bytes=1 << 20)
    Budget.of_file(tmp_path, 4000, limits).spend(rows=2000, values=1 << 17, unpacked=1 << 20)
    for sizes, said in (
        ({"rows": 2001}, "has 2001 rows or more, more than 2000 .raise the setting limits.table_rows"),
        (
            {"values": (1 << 17) + 1},
            "unpacks to 1048584 bytes or more, more than 1048576 .raise the setting limits.unpacked_bytes",
        ),
        ({"unpacked": (1 << 20) + 1}, "limits.unpacked_bytes"),
        ({"rows": -1}, "a size below 0"),
    ):
        with pytest.raises(DatasetError, match=said):
            Budget.of_file(tmp_path, 4000, limits).spend(**sizes)
