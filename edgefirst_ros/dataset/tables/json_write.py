# SPDX-License-Identifier: Apache-2.0
"""Rows as samples of nested JSON, one a line: what `nested` and `flatten` read, written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import KINDS
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.tables.json_form import BOX3D, KEYS, POSE
from edgefirst_ros.dataset.tables.values import count_lengths, is_valid, make_lists

OF_SAMPLE = tuple(c.name for c in schema.WORKING.values() if c.level in ("identity", "sample"))
PARSED = ("labels", "category_metadata")
"""Metadata keys whose values are JSON."""


class NestedWriter:
    """Writes rows in working types as nested JSON; neighbouring rows of one sample become its annotations.

    Each column has a key, null where a row has no value. A file of 2025.10 is a bare array, with
    polygons under `mask`; later ones are an object with the metadata before the samples.
    """

    def __init__(
        self, file: BinaryIO, columns: Mapping[str, Column], metadata: Mapping[str, str], version: str
    ) -> None:
        self._file = file
        self._columns = columns
        self._bare = not schema.has_metadata(version)
        self._layout = "ltwh" if self._bare else metadata.get("box2d_format", "ltwh")
        self._held = pl.DataFrame(schema={"head": pl.String, "row": pl.String, "blank": pl.Boolean})
        """Rows of the last sample so far."""
        self._first = True
        if self._bare:
            file.write(b"[")
        else:
            beside = json.dumps({key: _parse_value(key, text) for key, text in metadata.items()}, ensure_ascii=False)
            # Half a surrogate pair is written as JSON's own escape.
            file.write(beside[:-1].encode("utf-8", "backslashreplace") + b', "samples": [')

    def write_batch(self, batch: pa.RecordBatch) -> None:
        rows, blank = self._annotations(batch)
        own = pl.DataFrame({"head": self._heads(batch), "row": rows, "blank": blank})
        every = pl.concat([self._held, own]).with_columns(pl.col("head").rle_id().alias("run"))
        last = every["run"] == every["run"].max()
        self._held = every.filter(last).drop("run")  # the next batch may continue with its sample
        self._write(every.filter(~last))

    def close(self) -> None:
        """Write the last sample, and the end of the file."""
        self._write(self._held.with_columns(pl.lit(0).alias("run")))
        self._file.write(b"\n]\n" if self._bare else b"\n]}\n")

    def _write(self, rows: pl.DataFrame) -> None:
        """Write the samples of rows, which a `run` of rows makes."""
        runs = rows.group_by("run", maintain_order=True).agg(
            pl.col("head").first(), pl.col("row").str.join(","), pl.col("blank").all() & (pl.len() == 1)
        )
        whole = pl.concat_str(
            pl.col("head").str.strip_suffix("}"),
            pl.lit(',"annotations":['),
            pl.when("blank").then(pl.lit("")).otherwise("row"),
            pl.lit("]}"),
        )
        if len(runs):
            samples = runs.select(whole.str.join(",\n")).item()
            self._file.write(f"{'' if self._first else ','}\n{samples}".encode())
            self._first = False

    def _heads(self, batch: pa.RecordBatch) -> pl.Series:
        """Return the sample part of each row as JSON text."""
        there = {name: batch[name] for name in OF_SAMPLE if name in self._columns}
        frame = _make_series(there.pop("frame", pa.nulls(batch.num_rows, pa.uint32())))
        frame = frame.cast(pl.UInt32)
        name = _make_series(there.pop("name"))
        suffix = "_" + frame.cast(pl.String).str.zfill(3) + f".{KINDS[0]}"
        found = {
            "image_name": pl.select(pl.when(frame.is_null()).then(name).otherwise(name + suffix)).to_series(),
            "name": name,
            "sequence_name": pl.select(pl.when(frame.is_not_null()).then(name)).to_series(),
            "frame_number": frame,
        }
        if "group" in there:
            found["group_name"] = _make_series(there.pop("group"))
        if "size" in there:
            size = _make_series(there.pop("size"))
            found |= {"width": size.arr.get(0), "height": size.arr.get(1)}
        sensors = {}
        for column, sensor, names in (("location", "gps", ("latitude", "longitude")), ("pose", "imu", POSE)):
            if column in there:
                sensors[sensor] = _name_numbers(there.pop(column), names)
        if sensors:
            found["sensors"] = _make_series(pa.StructArray.from_arrays(list(sensors.values()), list(sensors)))
        found |= {column: _make_series(array) for column, array in there.items()}
        return _encode_columns(found)

    def _annotations(self, batch: pa.RecordBatch) -> tuple[pl.Series, pl.Series]:
        """Return each row without the columns of its sample, as JSON text, and whether it is empty."""
        blank = np.ones(batch.num_rows, bool)
        found: dict[str, pl.Series] = {}
        for name in self._columns:
            if name in OF_SAMPLE:
                continue
            array = batch[name]
            blank &= ~is_valid(array)
            if name == "box2d":
                array = _name_numbers(array, KEYS[self._layout])
            elif name == "box3d":
                array = _name_numbers(array, BOX3D)
            elif name == "polygon":
                array = _pair_numbers(array)
                if self._bare:
                    array = pa.StructArray.from_arrays([array], ["polygon"], mask=pc.is_null(array))
            elif name == "iscrowd" and self._bare:
                array = array.cast(pa.uint8())
            series = _make_series(array)
            key = {"label": "label_name", "polygon": "mask" if self._bare else "polygon"}.get(name, name)
            found[key] = series.bin.encode("base64") if name == "mask" else series
        if not found:
            return pl.Series(["{}"] * batch.num_rows, dtype=pl.String), pl.Series(blank)
        return _encode_columns(found), pl.Series(blank)


def _make_series(array: pa.Array) -> pl.Series:
    found: pl.Series = pl.from_arrow(array)  # type: ignore[assignment]  # an array makes no frame
    return found


def _encode_columns(columns: dict[str, pl.Series]) -> pl.Series:
    frame = pl.DataFrame([series.alias(name) for name, series in columns.items()])
    encoded: pl.Series = frame.select(pl.struct(pl.all()).struct.json_encode().alias("text"))["text"]
    return encoded


def _name_numbers(array: pa.Array, names: tuple[str, ...]) -> pa.Array:
    children = [pc.list_element(array, number) for number in range(len(names))]
    return pa.StructArray.from_arrays(children, list(names), mask=pc.is_null(array))


def _pair_numbers(array: pa.Array) -> pa.Array:
    rings = pc.list_flatten(array)
    numbers = pc.list_flatten(rings)
    kind = pa.list_(pa.float32(), 2)
    points = pa.Array.from_buffers(kind, len(numbers) // 2, [None], children=[pa.concat_arrays([numbers])])
    return make_lists(count_lengths(array), make_lists(count_lengths(rings) // 2, points), is_valid(array))


def _parse_value(key: str, text: str) -> object:
    """Metadata as JSON has them: objects and arrays as such, everything else as text."""
    value = schema.parse_metadata(text) if key in PARSED else text
    return value if isinstance(value, dict | list) else text
