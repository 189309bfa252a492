# SPDX-License-Identifier: Apache-2.0
"""Errors of others as one line: who is at fault is what the user is to do something about."""

import errno
import io
import os

import pytest
from PIL import Image, UnidentifiedImageError

from edgefirst_ros.errors import describe_any, is_out_of_memory, quote_error


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
            "unexpected ImportError: no such name; --traceback before the verb shows where",
        ),
    ],
)
def test_a_foreign_error_is_one_line(error, memory, told):
    assert (is_out_of_memory(error), describe_any(error)) == (memory, told)


def test_what_a_library_says_has_no_address_which_differs_with_every_run():
    with pytest.raises(UnidentifiedImageError, match="object at 0x") as refused:
        Image.open(io.BytesIO(b"no picture"))
    assert quote_error(refused.value) == "cannot identify image file"
