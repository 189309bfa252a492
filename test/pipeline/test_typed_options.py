# SPDX-License-Identifier: Apache-2.0
"""The types of `convert`'s options are those of the model of the settings.

Run as a program it writes them anew: python test/pipeline/test_typed_options.py
"""

import re
import sys
import types
import typing
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import edgefirst_ros
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import UsageError
from edgefirst_ros.pipeline import conversion

FILE = Path(conversion.__file__)
OPTIONS = re.compile(r"class Options\(.*?\n(?=\n\n)", re.S)


def written(kind):
    """How a type of the model is written; sequences and maps of any kind are taken for tuples and dicts."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return written(arguments[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(repr(one) for one in arguments)}]".replace("'", '"')
    if origin in (types.UnionType, typing.Union):
        return " | ".join("None" if one is type(None) else written(one) for one in arguments)
    if origin is tuple:
        return f"Sequence[{written(arguments[0])}]"
    if origin is dict:
        return f"Mapping[str, {written(arguments[1])}]"
    if isinstance(kind, type) and (issubclass(kind, edgefirst_ros.config.Model) or is_dataclass(kind)):
        return f"{kind.__name__} | Mapping[str, object]"
    return kind.__name__


def rendered():
    lines = [
        "class Options(TypedDict, total=False):",
        '    """The fields of `Settings` by keyword; what each is for is stated there."""',
        "",
    ]
    lines += [f"    {name}: {written(field.annotation)}" for name, field in Settings.model_fields.items()]
    return OPTIONS.sub("\n".join(lines) + "\n", FILE.read_text())


def test_the_options_are_the_fields_of_the_model():
    assert FILE.read_text() == rendered(), "write them anew: python test/pipeline/test_typed_options.py"


def test_convert_takes_them():
    assert edgefirst_ros.convert.__annotations__["options"] == "Unpack[Options]"


def test_an_option_that_is_none_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match=r"jpeg_qualty.*jpeg_quality"):
        edgefirst_ros.convert("none.mcap", tmp_path, jpeg_qualty=90)


if __name__ == "__main__":
    sys.exit(FILE.write_text(rendered()) == 0)
