# SPDX-License-Identifier: Apache-2.0
"""TAB: the annotations, every rule with its repair. Source: EdgeFirst Annotation Schema 2026.04."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.values import (
    LAYOUTS,
    cast_values,
    count_lengths,
    drop_broken_rings,
    is_list,
    is_valid,
)
from edgefirst_ros.dataset.validate.report import (
    KEY,
    Found,
    Repair,
    Subject,
    is_readable,
    is_same,
    list_places,
    parse,
    place_of,
    rule,
)
from edgefirst_ros.errors import EdgeFirstError, pluralize
from edgefirst_ros.sensors.masks import VOID
from edgefirst_ros.sensors.png import MAX_SIDE, PNG_SIGNATURE, check_png, decode_gray, make_chunk

BOXES = {"box2d": 4, "box3d": 6}
PLACES = {"location": 2, "pose": 3}
SCORES = tuple(name for name in schema.list_columns(schema.VERSIONS[-1]) if name.endswith("_score"))
SAMPLE_LEVEL = (
    *(c.name for c in schema.list_columns(schema.VERSIONS[-1]).values() if c.level == "sample"),
    "timestamp",
)
INDICES = ("neg_label_indices", "not_exhaustive_label_indices")
WORDS = {"category_frequency": ("f", "c", "r"), "degradation": ("none", "low", "medium", "high")}
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
RANDOM = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
ROUNDING = 1e-4
"""How far coordinates in parts of the picture may are outside it: a fifth of a pixel of 2048."""
PNG_HEADER = struct.Struct(">8xI4sIIBB")
GRAY = 0
NOISE = 1e-6
"""How far rounding may take a score out of 0..1: eight steps of a Float32 at 1."""
HEAD = struct.Struct(">8sI4sII5sII4s")
"""Of a PNG whose data follow its header at once: up to the kind of the second chunk."""
TAIL = make_chunk(b"IEND", b"")

Flags = NDArray[np.bool_]


# ---- repairs: a column at a time, in the type that it had ---------------------------------------
def null_bad(array: pa.Array, bad: Flags) -> pa.Array:
    """Return the values with null instead of the bad ones."""
    return select_places(array, pa.array(np.arange(len(array)), mask=bad)) if bad.any() else array


def select_places(array: pa.Array, places: pa.Array) -> pa.Array:
    """Return the values at these places, null at a null; Arrow itself cannot do that with text and bytes as views."""
    kind, types = array.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        plain = schema.TEXT if types.is_string_view(kind) else pa.large_binary()
        return array.cast(plain).take(places).cast(kind)
    return array.take(places)


def mend_scores(array: pa.Array) -> tuple[pa.Array, int]:
    """Bring scores that rounding took out of 0..1 back to its end; others outside become null."""
    valid, values = is_valid(array), pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    outside = valid & ~((values >= 0) & (values <= 1))
    if not outside.any():
        return array, 0
    near = outside & (values >= -NOISE) & (values <= 1 + NOISE)
    kept = np.where(near, np.clip(values, 0, 1), values)
    return pa.array(kept, array.type, mask=~valid | (outside & ~near)), int(outside.sum())


def mend_numbers(array: pa.Array, length: int) -> tuple[pa.Array, int]:
    """Make lists null that are not `length` finite numbers."""
    counts = count_lengths(array)
    flat = cast_values(pc.list_flatten(array), pa.float64()).to_numpy(zero_copy_only=False)  # a null is NaN
    rows = np.repeat(np.arange(len(array)), counts)
    broken = np.bincount(rows[~np.isfinite(flat)], minlength=len(array)) > 0
    bad = is_valid(array) & (broken | (counts != length))
    return null_bad(array, bad), int(bad.sum())


def mend_timings(array: pa.Array) -> tuple[pa.Array, int]:
    """Make durations null that are negative."""
    children, count = [], 0
    for child in array.flatten():
        if pa.types.is_signed_integer(child.type):
            bad = pc.fill_null(pc.less(child, 0), False).to_numpy(zero_copy_only=False)
            count += int(bad.sum())
            children.append(null_bad(child, bad))
        else:
            children.append(child)
    if not count:
        return array, 0
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=pa.array(~is_valid(array))), count


def mend_masks(array: pa.Array) -> tuple[pa.Array, int]:
    """Make masks null that are not whole PNG files."""
    bad = np.array([mask.is_valid and bool(_find_fault(mask.as_py())) for mask in array], bool)
    return null_bad(array, bad), int(bad.sum())


# ---- the table ---------------------------------------------------------------------------------
@rule("TAB001", "error", "columns have types that can be read as those of the schema version")
def check_readable_types(subject: Subject) -> Found:
    """A file without schema_version is of 2025.10: masks of later files fail there."""
    known = schema.list_columns(subject.version)
    for field in subject.annotations.schema if subject.annotations else ():
        column = known.get(field.name)
        if column and not is_readable(field.type, column.type):
            yield field.name, f"is {field.type}, must be {column.type} in {subject.version}"


@rule("TAB002", "warning", "columns have exactly the types of the schema version")
def check_exact_types(subject: Subject) -> Found:
    """Columns that no version knows are allowed."""
    known, every = schema.list_columns(subject.version), {column.name for column in schema.COLUMNS}
    for field in subject.annotations.schema if subject.annotations else ():
        column = known.get(field.name)
        if column is None and field.name in every:
            yield field.name, f"is not a column of {subject.version}"
        elif column and is_readable(field.type, column.type) and not is_same(field.type, column.type):
            yield field.name, f"is {field.type}, should be {column.type} in {subject.version}"


@rule("TAB003", "error", "every row names its sample")
def check_names(subject: Subject) -> Found:
    """`frame` may be null: a picture that is not a part of a sequence."""
    kinds = {field.name: field.type for field in subject.annotations.schema} if subject.annotations else {}
    if subject.annotations and "name" not in kinds:
        yield "name", "the table has no such column"
        return
    rows = subject.annotated.with_row_index("row")
    unnamed = pl.col("name").is_null() | (pl.col("name") == "")
    flags = pl.col("frame").is_not_null() & pl.lit(kinds.get("frame") == pa.bool_())  # which Arrow takes for numbers
    yield from list_places(rows, unnamed | (pl.col("frame") < 0) | flags, "name {name!r}, frame {frame!r}", "row {row}")


@rule("TAB004", "warning", "the schema version is a known one")
def check_version(subject: Subject) -> Found:
    """Known columns of a later version are read all the same."""
    said = subject.annotations.metadata.get("schema_version") if subject.annotations else None
    if said is not None and said not in schema.VERSIONS:
        yield "schema_version", f"is {said!r}; known: {', '.join(schema.VERSIONS)}"


@rule("TAB005", "error", "file metadata have values of the format")
def check_metadata(subject: Subject) -> Found:
    """All are text; `labels` and `category_metadata` are JSON."""
    found = subject.annotations.metadata if subject.annotations else {}
    for key in schema.METADATA:
        if key.name in found and key.values and found[key.name] not in key.values:
            yield key.name, f"is {found[key.name]!r}, must be one of {', '.join(key.values)}"
    labels, categories = parse(found.get("labels", "[]")), parse(found.get("category_metadata", "{}"))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        yield "labels", "is not a JSON array of texts"
    if not isinstance(categories, dict):
        yield "category_metadata", "is not a JSON object"
        return
    for name, category in categories.items():
        wrong = _list_wrong_fields(category) if isinstance(category, dict) else ["all of it"]
        if wrong:
            yield "category_metadata", f"{name!r}: {', '.join(wrong)} cannot have the type of the format"


@rule("TAB006", "warning", "empty columns are not written")
def check_empty_columns(subject: Subject) -> Found:
    """An absent score means "not applicable", a null one that it is missing."""
    table = subject.annotations
    if table is None or not table.rows:
        return
    empty = set(table.schema.names)
    for batch in table.batches():
        empty = {name for name in empty if batch.column(name).null_count == batch.num_rows}
    for name in sorted(empty):
        yield name, "is null in every row"


# ---- rows --------------------------------------------------------------------------------------
@rule(
    "TAB007",
    "error",
    "rings of polygons have three points at least, as finite pairs",
    Repair("rings of {} removed", dict.fromkeys(("polygon", "mask"), drop_broken_rings), is_list),
)
def check_rings(subject: Subject) -> Found:
    """In 2025.10 polygons are in `mask`, separated by NaN."""
    for found in subject.rings(apart=True):
        size = pl.col("ring").list.len().fill_null(0)
        finite = pl.col("ring").list.eval(pl.element().is_finite().fill_null(False)).list.all()
        bad = (size < 6) | (size % 2 == 1) | ~finite.fill_null(True)
        yield from list_places(
            found, bad, lambda row: f"a ring of {len(row['ring'] or ())} values, or not all of them finite"
        )


@rule(
    "TAB008",
    "error",
    "scores are within 0..1",
    Repair("values of {} brought to 0..1 or made null", dict.fromkeys(SCORES, mend_scores)),
)
def check_scores(subject: Subject) -> Found:
    """Null without any."""
    for name in SCORES:
        bad = pl.col(name).is_not_null() & ~pl.col(name).is_between(0, 1)
        yield from list_places(subject.annotated, bad, f"{name} is {{{name}}}")


@rule(
    "TAB009",
    "error",
    "boxes are finite and have 4 (box2d) or 6 (box3d) numbers",
    Repair(
        "values of {} that are not finite made null", {n: partial(mend_numbers, length=k) for n, k in BOXES.items()}
    ),
)
def check_boxes(subject: Subject) -> Found:
    """Nulls within a box are not numbers either."""
    for name, length in BOXES.items():
        bad = pl.col(name).is_not_null() & ~_is_finite(name, length)
        yield from list_places(subject.annotated, bad, f"{name} is {{{name}}}")


@rule("TAB010", "error", "timings are not negative", Repair("negative timings made null", {"timing": mend_timings}))
def check_timings(subject: Subject) -> Found:
    """Durations in nanoseconds."""
    kind = subject.annotated.schema["timing"]
    for field in kind.fields if isinstance(kind, pl.Struct) else ():
        if field.dtype.is_signed_integer():
            rows = subject.annotated.select(*KEY, pl.col("timing").struct.field(field.name).alias("its"))
            yield from list_places(rows, pl.col("its") < 0, f"timing.{field.name} is {{its}} ns")


@rule("TAB011", "error", "columns of the sample have one value in all its rows")
def check_sample_level(subject: Subject) -> Found:
    """Size, place, attitude, group and so on belong to the picture, not to an object in it."""
    rows = subject.annotated
    first = rows.select(KEY).with_row_index("row").select(pl.col("row").first().over(KEY)).to_series()
    for name in SAMPLE_LEVEL:
        if rows[name].null_count() < len(rows):
            pair = rows.select(*KEY, pl.col(name).alias("its"), rows[name].gather(first).alias("other"))
            bad = pl.col("its").ne_missing(pl.col("other"))
            yield from list_places(pair, bad, f"{name} is {{other!r}} and {{its!r}}")


@rule("TAB012", "error", "a label has one label_index, and the other way round")
def check_one_index(subject: Subject) -> Found:
    """In the whole dataset."""
    rows = subject.annotated.select(*KEY, "label", "label_index").drop_nulls(["label", "label_index"])
    rows = rows.with_columns(pl.col("label_index").first().over("label").alias("first"))
    two = pl.col("first") != pl.col("label_index")
    yield from list_places(rows, two, "label {label!r} has label_index {first} and {label_index}")
    rest = rows.filter(~two).with_columns(pl.col("label").first().over("label_index").alias("other"))
    yield from list_places(
        rest, pl.col("label") != pl.col("other"), "label_index {label_index} is the number of {other!r} and {label!r}"
    )


@rule(
    "TAB013",
    "error",
    "masks are grayscale PNG files",
    Repair("masks that are not PNG files made null", {"mask": mend_masks}, lambda kind: not is_list(kind)),
)
def check_masks(subject: Subject) -> Found:
    """Chunks and their CRC; the pixels are not decoded."""
    for row in subject.masks():
        if fault := _find_fault(row["mask"]):
            yield place_of(row), f"mask: {fault}"
            continue
        *_, colour = PNG_HEADER.unpack_from(row["mask"])
        if colour != GRAY:
            yield place_of(row), f"mask has colour type {colour}, must be grayscale (0)"


@rule("TAB014", "warning", "instance masks have the depth of mask_interpretation: 1 bit when binary, else 8 or 16")
def check_mask_depth(subject: Subject) -> Found:
    """Masks without a box are class indices in every interpretation."""
    said = subject.annotations.metadata.get("mask_interpretation", "binary") if subject.annotations else ""
    allowed = (1,) if said == "binary" else (8, 16)
    for row in subject.masks():
        if row["box2d"] is not None and len(row["mask"]) >= PNG_HEADER.size:
            depth = PNG_HEADER.unpack_from(row["mask"])[-2]
            if depth not in allowed:
                yield place_of(row), f"mask has {depth} bits, mask_interpretation is {said!r}"


@rule("TAB015", "error", "a row without label and geometry is the only one of its sample")
def check_lone_rows(subject: Subject) -> Found:
    """An empty row says that the sample has no objects."""
    empty = pl.all_horizontal(pl.col("label", *BOXES).is_null(), ~pl.col("has_polygon", "has_mask"))
    found = subject.annotated.group_by(KEY, maintain_order=True).agg(pl.len().alias("rows"), empty.sum().alias("empty"))
    yield from list_places(
        found, (pl.col("rows") > 1) & (pl.col("empty") > 0), "{empty} of {rows} rows have neither label nor geometry"
    )


@rule("TAB016", "warning", "all samples have a group, or none has")
def check_groups(subject: Subject) -> Found:
    """Readers that select by group would never see the others."""
    found = subject.annotated.group_by(KEY, maintain_order=True).agg(pl.col("group").last())
    if found["group"].null_count() < len(found):
        yield from list_places(found, pl.col("group").is_null(), "has no group")


@rule("TAB017", "warning", "pixels of semantic masks have a name in labels")
def check_pixel_names(subject: Subject) -> Found:
    """Pixel value i is labels[i], 255 is not a class; without `labels` the order is the model's own."""
    labels = subject.read_metadata("labels")
    for row in subject.masks() if isinstance(labels, list) else ():
        if all(row[name] is None for name in ("label", "object_id", "box2d")):
            values = decode_gray(row["mask"])
            if values is None:
                continue  # TAB013
            unnamed = values[(values.astype(np.uint16, copy=False) >= len(labels)) & (values != VOID)]
            if len(unnamed):
                yield place_of(row), f"mask has pixels of {unnamed.min()}, there are {pluralize(len(labels), 'label')}"


@rule("TAB018", "warning", "object ids are UUIDs")
def check_object_ids(subject: Subject) -> Found:
    """In the usual form, of either case."""
    bad = ~pl.col("object_id").str.contains(UUID)
    yield from list_places(subject.annotated, bad, "object_id {object_id!r}")


@rule("TAB019", "warning", "coordinates of polygons are within 0..1")
def check_coordinates(subject: Subject) -> Found:
    """They are parts of the picture, never pixels."""
    for found in subject.rings(apart=False):
        value = pl.element()
        outside = pl.col("ring").list.eval(value.filter(value.is_finite() & ~value.is_between(-ROUNDING, 1 + ROUNDING)))
        rows = found.with_columns(outside.alias("outside"))
        yield from list_places(
            rows,
            pl.col("outside").list.len() > 0,
            lambda row: f"a ring has {len(row['outside'])} values outside, {row['outside'][0]} for one",
        )


@rule("TAB020", "warning", "sizes of boxes are not negative, and centres of 2D boxes are in the picture")
def check_box_bounds(subject: Subject) -> Found:
    """In the layout and the unit that the file metadata say; boxes in pixels need the size of the picture."""
    said = subject.annotations.metadata if subject.annotations else {}
    layout = said.get("box2d_format", LAYOUTS[0])
    normalised = said.get("box2d_normalized", "true") == "true"
    unit = "parts" if normalised else "pixels"
    if layout in LAYOUTS:
        a, b, c, d = (pl.col("box2d").list.get(n, null_on_oob=True) for n in range(4))
        centres = {"cxcywh": (a, b), "xyxy": ((a + c) / 2, (b + d) / 2), "ltwh": (a + c / 2, b + d / 2)}[layout]
        sizes = (c - a, d - b) if layout == "xyxy" else (c, d)
        bad = (sizes[0] < 0) | (sizes[1] < 0)
        for number, at in enumerate(centres):
            most = pl.lit(1.0) if normalised else pl.col("size").list.get(number, null_on_oob=True)
            bad |= ~at.is_between(-ROUNDING * most, most * (1 + ROUNDING)).fill_null(True)
        bad &= _is_finite("box2d", 4)
        yield from list_places(subject.annotated, bad, f"box2d is {{box2d}} ({layout}, {unit})")
    extents = [pl.col("box3d").list.get(n, null_on_oob=True) < 0 for n in (3, 4, 5)]
    bad = pl.any_horizontal(extents) & _is_finite("box3d", 6)
    yield from list_places(subject.annotated, bad, "box3d is {box3d}")


@rule("TAB021", "warning", "category_frequency is f, c or r, degradation is none, low, medium or high")
def check_words(subject: Subject) -> Found:
    """Evaluation and filters use these words."""
    for name, known in WORDS.items():
        bad = ~pl.col(name).is_in(known)
        yield from list_places(subject.annotated, bad, f"{name} is {{{name}!r}}")


@rule(
    "TAB022",
    "error",
    "size is positive, location on the earth, pose finite",
    Repair(
        "values of {} that are not finite made null", {n: partial(mend_numbers, length=k) for n, k in PLACES.items()}
    ),
)
def check_places(subject: Subject) -> Found:
    """Pixels; degrees [latitude, longitude], in the first format the other way round; degrees."""
    order = schema.get_location_order(subject.version)
    size = pl.col("size")
    bad = size.list.contains(0) | (size.list.drop_nulls().list.len() < size.list.len())
    yield from list_places(subject.annotated, bad, "size is {size}")
    most = {"latitude": 90, "longitude": 180}
    degrees = [pl.col("location").list.get(n, null_on_oob=True).abs() > most[name] for n, name in enumerate(order)]
    bad = pl.col("location").is_not_null() & (~_is_finite("location", 2) | pl.any_horizontal(degrees))
    yield from list_places(subject.annotated, bad, f"location is {{location}}, must be [{', '.join(order)}]")
    bad = pl.col("pose").is_not_null() & ~_is_finite("pose", 3)
    yield from list_places(subject.annotated, bad, "pose is {pose}")


@rule("TAB023", "warning", "neg_label_indices and not_exhaustive_label_indices hold known label indices")
def check_indices(subject: Subject) -> Found:
    """Known from a row, from a place in `labels`, or from an id in `category_metadata`."""
    labels = subject.read_metadata("labels")
    known = {*(range(len(labels)) if isinstance(labels, list) else ()), *subject.categories.values()}
    known.update(subject.annotated["label_index"].drop_nulls().unique().to_list())
    for name in INDICES:
        listed = subject.annotated[name].drop_nulls().list.explode(empty_as_null=False)
        found = set(listed.drop_nulls().unique().to_list()) - known
        if found:
            unknown = pl.col(name).list.eval(pl.element().filter(pl.element().is_in(found)))
            rows = subject.annotated.select(*KEY, unknown.list.first().alias("first"))
            text = f"{name} has {{first}}, which no row, label or category has"
            yield from list_places(rows, pl.col("first").is_not_null(), text)


@rule("TAB024", "error", "labels in neg_label_indices are not in the picture")
def check_absent(subject: Subject) -> Found:
    """They are verified to be absent."""
    rows = subject.annotated
    absent = rows.select(*KEY, pl.col(INDICES[0]).alias("label_index")).explode("label_index", empty_as_null=False)
    absent = absent.drop_nulls("label_index")
    found = rows.join(absent.unique(), on=[*KEY, "label_index"], how="semi", nulls_equal=True, maintain_order="left")
    yield from list_places(
        found.drop_nulls("label_index"), pl.lit(True), "label_index {label_index} is annotated and in neg_label_indices"
    )


@rule("TAB025", "warning", "an object id that was not made at random belongs to one sequence")
def check_one_sequence(subject: Subject) -> Found:
    """A random one (UUID version 4) is one track, wherever it comes; others are made of names that come again.

    Pictures outside of sequences are not checked.
    """
    rows = subject.annotated.select(*KEY, "object_id").drop_nulls(["object_id", "frame"])
    rows = rows.filter(~pl.col("object_id").str.contains(RANDOM))
    rows = rows.with_columns(pl.col("name").first().over("object_id").alias("other"))
    yield from list_places(rows, pl.col("name") != pl.col("other"), "object_id {object_id!r} is in {other} too")


@rule("TAB026", "warning", "label and label_index are those of category_metadata, where it has ids")
def check_categories(subject: Subject) -> Found:
    """`category_metadata` names indices; they may have gaps."""
    names: dict[int, str] = {}
    for name, index in subject.categories.items():
        if names.setdefault(index, name) != name:
            yield "category_metadata", f"id {index} is of {names[index]!r} and {name!r}"
    if not names:
        return
    pairs = subject.annotated.select("label", "label_index").unique().drop_nulls("label_index")
    wrong = [(label, n) for label, n in pairs.iter_rows() if n not in names or label not in (None, names[n])]
    wrong = [(label, n) for label, n in wrong if subject.categories.get(label) != n]
    bad = pl.DataFrame(wrong, pairs.schema, orient="row")
    rows = subject.annotated.join(bad, on=pairs.columns, how="semi", nulls_equal=True, maintain_order="left")
    yield from list_places(rows, pl.lit(True), partial(_say_category, names))


@rule("TAB027", "warning", "boxes in space of edgefirst-ros state their axes")
def check_axes(subject: Subject) -> Found:
    """Earlier versions wrote them in the optical axes of a sensor."""
    table, frames = subject.annotations, subject.frames
    software = parse(frames.metadata.get("software", "null")) if frames else None
    if table is not None and schema.lacks_axes(table.schema.names, table.metadata, software):
        yield "box3d_axes", "is missing; edgefirst-ros migrate --box3d-axes optical turns those of earlier versions"


def _is_finite(name: str, length: int) -> pl.Expr:
    numbers = [pl.col(name).list.get(n, null_on_oob=True).is_finite().fill_null(False) for n in range(length)]
    return (pl.col(name).list.len() == length) & pl.all_horizontal(numbers)


def _say_category(names: Mapping[int, str], row: Mapping[str, Any]) -> str:
    label, index = row["label"], row["label_index"]
    if index not in names:
        return f"label_index {index} has no name in category_metadata"
    return f"label {label!r} has label_index {index}, which category_metadata names {names[index]!r}"


def _list_wrong_fields(category: dict[str, Any]) -> list[str]:
    """Return the fields of a category with a value of the wrong kind; null counts as absent."""
    good = {name: isinstance(category.get(name), str) for name in ("supercategory", "synset", "definition")}
    good["id"] = type(category.get("id")) is int
    synonyms = category.get("synonyms")
    good["synonyms"] = isinstance(synonyms, list) and all(isinstance(one, str) for one in synonyms)
    return [name for name, right in good.items() if category.get(name) is not None and not right]


def _find_fault(png: bytes) -> str:
    """Return why a mask is not a whole PNG; empty if it is one."""
    try:
        if not _is_usual(png):
            check_png(png)
    except EdgeFirstError as error:
        return str(error)
    return ""


def _is_usual(png: bytes) -> bool:
    """True if it is a whole PNG of three chunks, as nearly all masks are: told at a tenth of the time."""
    end = len(png) - len(TAIL) - 4
    if end <= HEAD.size or not png.endswith(TAIL):
        return False
    signature, size, first, width, height, _, crc, length, second = HEAD.unpack_from(png)
    return bool(
        (signature, size, first, second) == (PNG_SIGNATURE, 13, b"IHDR", b"IDAT")
        and 0 < width <= MAX_SIDE
        and 0 < height <= MAX_SIDE
        and length == end - HEAD.size
        and zlib_ng.crc32(png[12:29]) == crc
        and zlib_ng.crc32(memoryview(png)[37:end]) == int.from_bytes(png[end : end + 4], "big")
    )
