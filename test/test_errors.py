# SPDX-License-Identifier: Apache-2.0
"""Errors of others as one line: who is at fault is what the user is to do something about."""

import errno
import os

import pytest

from edgefirst_ros.errors import describe_foreign, is_out_of_memory


def refused(number):
    return OSError(number, os.strerror(number), "/some/where")


@pytest.mark.parametrize(
    ("error", "memory", "told"),
    [
        (MemoryError(), True, "out of memory: raise its limit (ulimit -v) or free some"),
        (MemoryError("of 8 GB"), True, "out of memory: raise its limit (ulimit -v) or free some; of 8 GB"),
        (
            refused(errno.ENOMEM),
            True,
            "out of memory: raise its limit (ulimit -v) or free some; [Errno 12] Cannot allocate memory: '/some/where'",
        ),
        (
            ImportError("libarrow.so: failed to map segment"),
            True,
            "out of memory: raise its limit (ulimit -v) or free some; libarrow.so: failed to map segment",
        ),
        (refused(errno.EIO), False, "the system refuses: [Errno 5] Input/output error: '/some/where'"),
        (
            ImportError("no\nsuch name"),
            False,
            "unexpected ImportError: no such name; --traceback before the verb says where",
        ),
    ],
)
def test_a_foreign_error_is_one_line(error, memory, told):
    assert (is_out_of_memory(error), describe_foreign(error)) == (memory, told)
