# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command: the setup before any library is imported, and messages of errors."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from edgefirst_ros.errors import TRACEBACK, EdgeFirstError, describe_any, escape_text, is_out_of_memory

OBJECTS = 200_000
"""Objects made between two searches for garbage in cycles, which is rare. With Python's 700, a short command spent a
fifth of its processor time on searching its libraries again and again, and once more at its end."""


def main() -> None:
    """Run the command; exit codes: 0 all there, 1 error, 2 wrong usage, 3 finished with loss."""
    gc.set_threshold(OBJECTS, 10, 10)
    atexit.register(gc.freeze)  # the end of the process frees the remaining objects
    try:
        sys.unraisablehook = _raise_interrupts_again
        _open_closed_streams()
        sys.stdout, sys.stderr = Outlet.of(sys.stdout), Outlet.of(sys.stderr)
        warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"
        warnings.filterwarnings("ignore", module=r"PIL\.")  # our own errors report broken files
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, of numbers that overflow
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else numpy starts threads that this program does not need
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it searches all installed packages
        from edgefirst_ros.cli.app import app

        app()
    except (SystemExit, GeneratorExit):
        raise
    except KeyboardInterrupt:  # also while libraries are imported
        sys.exit(130)
    except BaseException as error:  # noqa: BLE001  panics of polars are not of type Exception
        sys.exit(_report(error))


def _raise_interrupts_again(lost: Any) -> None:
    """Interrupt the main thread once more if Ctrl-C came in a callback of a library, from which nothing is raised."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        import signal
        import threading

        for delay in (0.01, 0.1, 1.0):  # in here it would be lost too, and a busy machine is slow to start a thread
            with suppress(KeyboardInterrupt):
                threading.Timer(delay, os.kill, [os.getpid(), signal.SIGINT]).start()
                return
    else:
        sys.__unraisablehook__(lost)


class Outlet(io.TextIOWrapper):
    """Standard output or standard error; once its reader is gone (`| head`), the rest of the output is dropped.

    The command keeps its exit code, and a conversion its dataset.
    """

    @classmethod
    def of(cls, stream: TextIO) -> TextIO:
        """Return an outlet for a stream; the stream itself if it is not a file, as in tests."""
        if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, Outlet):
            return stream
        file = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115
        return cls(file, stream.encoding, stream.errors, line_buffering=stream.line_buffering)

    def write(self, text: str) -> int:
        with self._dropping():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._dropping():
            super().flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())


def _report(error: BaseException) -> int:
    """Print the error that ended the command, one line for a foreign one, to standard error; return the exit code."""
    if os.environ.get(TRACEBACK):
        import traceback

        traceback.print_exception(error)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb" or not sys.stderr.isatty()
    name = "edgefirst-ros:" if plain else "\x1b[1;31medgefirst-ros:\x1b[0m"  # in red, see https://no-color.org
    with suppress(OSError):
        print(f"{name} {escape_text(describe_any(error))}", file=sys.stderr, flush=True)
    if is_out_of_memory(error):
        os._exit(1)  # libraries that are half loaded may crash at the end
    return error.exit_code if isinstance(error, EdgeFirstError) else 1


def _open_closed_streams() -> None:
    """Open closed standard streams to the null device: else the first file that is opened takes their place.

    Libraries would print into it, and it may be a dataset.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115
