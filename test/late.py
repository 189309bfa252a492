# SPDX-License-Identifier: Apache-2.0
"""Modules that cost a second to import, for tests: imported by the process that runs such a test, when it does."""

import importlib
import importlib.util
import types

import pytest


class Late(types.ModuleType):
    """A module that is imported when something of it is first asked for."""

    def __getattr__(self, name):
        if name.startswith("_"):  # pytest asks all that a file has for marks of fixtures, which begin so
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def late(name, reason):
    """The module of that name; where its package is missing, the tests of the file that asks are skipped."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason, allow_module_level=True)
    return Late(name)
