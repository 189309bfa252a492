# SPDX-License-Identifier: Apache-2.0
"""Comparison of column types with those of the format: equal, or readable as them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if both are one type to a reader: how lengths and offsets are stored makes no difference.

    A struct may have further fields, as `timing` may.
    """
    (name, inner), other = _kind(found), _kind(wanted)
    if name == other[0] == "struct":
        inner = {key: value for key, value in inner.items() if key in other[1]}
    return bool((name, inner) == other)


def is_readable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if values of one are values of the other after a conversion.

    Text and categories, integers of any width, floats of any width, lists and arrays, more or fewer fields of a struct.
    """
    return _readable(_kind(found), _kind(wanted))


def _kind(kind: pa.DataType) -> tuple[str, Any]:
    types = pa.types
    if types.is_dictionary(kind):
        return "category", _kind(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text", None
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "binary", None
    if types.is_fixed_size_list(kind):
        return "array", (kind.list_size, _kind(kind.value_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return "list", _kind(kind.value_type)
    if types.is_struct(kind):
        return "struct", {field.name: _kind(field.type) for field in kind}
    if types.is_integer(kind) or types.is_boolean(kind):
        return "integer", str(kind)
    if types.is_floating(kind):
        return "float", str(kind)
    return str(kind), None


def _readable(found: tuple[str, Any], wanted: tuple[str, Any]) -> bool:
    if found == wanted or found[0] == "null":
        return True
    (a, inner_a), (b, inner_b) = found, wanted
    if {a, b} == {"text", "category"}:
        return True
    if a == b and a in ("integer", "float"):
        return True
    if a in ("array", "list") and b in ("array", "list"):
        if a == b == "array" and inner_a[0] != inner_b[0]:
            return False
        return _readable(inner_a[1] if a == "array" else inner_a, inner_b[1] if b == "array" else inner_b)
    if a == b == "struct":
        return all(_readable(inner_a[name], inner_b[name]) for name in set(inner_a) & set(inner_b))
    return False
