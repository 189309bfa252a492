# SPDX-License-Identifier: Apache-2.0
"""Names of members, sequences and the files of a dataset; sets of members and frames, one bit each."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa

from edgefirst_ros import streams
from edgefirst_ros.errors import DatasetError, UsageError, explain_errors, list_beside, require_path, sort_nearest
from edgefirst_ros.streams import SENSORS

T = TypeVar("T")
Layout = Literal["zip", "directory"]

KINDS = streams.list_kinds()
"""The kinds of members of first instances. Source: EdgeFirst Dataset Format, "Dataset Hierarchy"."""

MAX_FRAME = 2**32 - 1
MAX_NAME_BYTES = 180  # leaves room for "_FRAME.camera.jpeg" and ".frames.arrow.journal" below the usual 255

_MEMBER = re.compile(
    r"(?P<sequence>[^/]+)/(?P=sequence)_(?P<frame>[0-9]{1,10})\.(?P<kind>[a-z]+(?:-[a-z0-9_]+)?\.[a-z]+)"
)
_STAMPED = re.compile(r"(?P<host>.+)_\d{4}(?:_\d{2}){5}", re.DOTALL | re.ASCII)
# The last ones turn the direction of the text around them: a name would not be shown as it is written.
_FORBIDDEN = frozenset('/\\:*?"<>|\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069')
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
"""Categories of Unicode: control, surrogate, line and paragraph ends."""
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE | re.DOTALL)
_OWN_SUFFIX = re.compile(r"\.(?=(zip|arrow|frames|partial|journal)$)", re.IGNORECASE)


class Member(NamedTuple):
    """The parts of a member's name."""

    sequence: str
    frame: int
    kind: str


def make_member_name(sequence: str, frame: int, kind: str) -> str:
    """Return `SEQUENCE/SEQUENCE_FRAME.KIND`, FRAME with at least three digits.

    Raises DatasetError for an unknown kind, a frame outside 0..2**32-1 or a sequence that is not a safe name.
    """
    if streams.find_form(kind) is None:
        raise DatasetError(f"{kind!r} is not a kind of member; known: {', '.join(KINDS)}")
    if not 0 <= frame <= MAX_FRAME:
        raise DatasetError(f"frame {frame} of {sequence!r} is outside 0..{MAX_FRAME}")
    if make_safe(sequence) != sequence:
        raise DatasetError(f"{sequence!r} cannot name a sequence; {make_safe(sequence)!r} can")
    return f"{sequence}/{sequence}_{frame:03d}.{kind}"


def parse_member(name: str) -> Member | None:
    """Return the parts of a member's name, or None when it is not one.

    Any number of leading zeros is read, because other tools pad differently;
    `member_name(*...) == name` shows whether it is the form written here.
    """
    match = _MEMBER.fullmatch(name)
    if match is None or "\\" in name or "\0" in name:
        return None
    sequence, frame, kind = match.groups()
    if sequence in (".", "..") or int(frame) > MAX_FRAME or not streams.find_form(kind):
        return None
    return Member(sys.intern(sequence), int(frame), sys.intern(kind))  # every member keeps them


@functools.lru_cache(maxsize=256)  # called for every member
def make_safe(text: str) -> str:
    """Make `text` one path component that is valid on every common file system; a valid one is unchanged.

    Each forbidden character becomes `_`; a name over 180 bytes of UTF-8 is cut and marked with a hash of the whole.
    """
    name = "".join("_" if one in _FORBIDDEN or unicodedata.category(one) in _UNSEEN else one for one in text)
    if not name.strip(" ."):
        name = "_" * len(name) if "." in name else "recording"
    kept = name.lstrip(".- ")
    name = "_" * (len(name) - len(kept)) + kept
    kept = name.rstrip(". ")
    name = kept + "_" * (len(name) - len(kept))
    name = _OWN_SUFFIX.sub("_", name)
    if _DEVICE.fullmatch(name):
        name = "_" + name
    encoded = name.encode()
    if len(encoded) > MAX_NAME_BYTES:
        mark = "_" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = encoded[: MAX_NAME_BYTES - len(mark)].decode("utf-8", "ignore") + mark
    return name


def fold_case(name: str) -> str:
    """Return a name folded as case-insensitive and normalising file systems compare it."""
    return unicodedata.normalize("NFC", name).casefold()


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise UsageError for an output that is empty or a URI, or whose path is not UTF-8: no message could name it."""
    if re.match("[a-z][a-z0-9+.-]*:/", require_path(path)):
        raise UsageError(f"the output {os.fspath(path)} is a URI; expected a path of this machine")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"the output {os.fspath(path)!a} is not a valid path in UTF-8; choose another") from None


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise UsageError for an output folder whose path is not UTF-8, or that would get the name of a file."""
    check_path(path)
    stem, ending = os.path.splitext(os.fspath(path))
    if ending in (".zip", ".arrow", ".parquet", ".json", *streams.RECORDINGS) and not os.path.isdir(path):
        raise UsageError(f"the output {os.fspath(path)} has the name of a file; expected a folder, such as {stem}")


def check_name(name: str, what: str = "--name") -> str:
    """Return `name`; raises UsageError that begins with `what` when it cannot name a dataset."""
    safe = make_safe(name)
    if safe != name:
        raise UsageError(f"{what}: {name!r} cannot name a dataset; {safe!r} could")
    return name


def name_cameras(topics: Sequence[str]) -> dict[str, str]:
    """Return the distinct part of each topic: front of /front/camera/h264, rear of /rear/camera/h264.

    Raises UsageError if two have the same name, also where only the case of letters differs.
    """
    parts = {topic: [part for part in topic.split("/") if part] for topic in topics}
    begin = _count_alike(list(parts.values()))
    end = _count_alike([own[begin:][::-1] for own in parts.values()])
    names = {topic: make_safe("-".join(own[begin : len(own) - end] or own)) for topic, own in parts.items()}
    known: dict[str, str] = {}
    for topic, name in names.items():
        other = known.setdefault(name.casefold(), topic)
        if other != topic:
            raise UsageError(
                f"the topics {other!r} and {topic!r} would both be the camera {name}; convert one at a time, each with "
                "a --name of its own"
            )
    return names


def _count_alike(lists: Sequence[Sequence[str]]) -> int:
    """Return the number of leading items that all lists have in common."""
    return next((n for n, items in enumerate(zip(*lists, strict=False)) if len(set(items)) > 1), min(map(len, lists)))


def with_camera(sequence: str, camera: str) -> str:
    """Return the name of the sequence of one camera of several: HOST-CAMERA_YYYY_MM_DD_HH_MM_SS, or SEQUENCE-CAMERA."""
    host = find_host(sequence)
    return f"{host}-{camera}{sequence[len(host) :]}"


def find_host(sequence: str) -> str:
    """Return the host in `HOST_YYYY_MM_DD_HH_MM_SS`, or the whole of a sequence that is named otherwise."""
    match = _STAMPED.fullmatch(sequence)
    return match["host"] if match else sequence


class _File:
    """The path of a file of a dataset: its name and an ending, in one of its folders."""

    def __init__(self, ending: str, *, finished: bool = False) -> None:
        self._ending, self._finished = ending, finished

    def __get__(self, paths: DatasetPaths, _: type[DatasetPaths]) -> Path:
        return (paths.folder if self._finished else paths.folder_partial) / f"{paths.name}{self._ending}"


@dataclass(frozen=True)
class DatasetPaths:
    """Paths of the files of dataset `name` in the folder `out`, finished and while they are being written.

    `zip`: OUT/NAME.zip, OUT/NAME.arrow, OUT/NAME.frames.arrow.
    `directory`: OUT/NAME/NAME/SEQUENCE/..., OUT/NAME/NAME.arrow, OUT/NAME/NAME.frames.arrow, built in OUT/NAME.partial.
    """

    out: Path
    name: str
    layout: Layout = "zip"

    @property
    def folder(self) -> Path:
        """The folder that holds the finished tables."""
        return self.out if self.layout == "zip" else self.out / self.name

    @property
    def folder_partial(self) -> Path:
        """The folder that holds the row log."""
        return self.out if self.layout == "zip" else self.out / f"{self.name}.partial"

    @property
    def container(self) -> Path:
        """OUT/NAME.zip, or the folder OUT/NAME."""
        return self.out / f"{self.name}.zip" if self.layout == "zip" else self.folder

    @property
    def members(self) -> Path:
        """Root of the member names: OUT/NAME.zip, or the folder OUT/NAME/NAME."""
        return self.container if self.layout == "zip" else self.folder / self.name

    @property
    def members_partial(self) -> Path:
        """OUT/NAME.zip.partial, or the folder OUT/NAME.partial/NAME."""
        return self.out / f"{self.name}.zip.partial" if self.layout == "zip" else self.folder_partial / self.name

    arrow = _File(".arrow", finished=True)
    """Table of annotations, Arrow IPC file."""
    frames = _File(".frames.arrow", finished=True)
    """Frames table, one row per sample, Arrow IPC file."""
    row_log = _File(".rows.journal")
    """The rows of both tables so far."""
    arrow_journal = _File(".arrow.journal")
    """The annotations so far as version 0.1 wrote them, an Arrow IPC stream."""
    frames_journal = _File(".frames.arrow.journal")
    """The frames so far as version 0.1 wrote them, an Arrow IPC stream."""
    arrow_partial = _File(".arrow.partial")
    """The annotations sealed, not yet in place."""
    frames_partial = _File(".frames.arrow.partial")
    """The frames sealed, not yet in place."""
    reserve = _File(".reserve.partial")
    """Space held for the end of the dataset."""

    @property
    def journals(self) -> tuple[Path, ...]:
        """All files that hold the rows of an unfinished dataset."""
        return self.row_log, self.arrow_journal, self.frames_journal

    @property
    def temporary(self) -> tuple[Path, ...]:
        """All files beside the partial container."""
        remade = (path.with_name(f"{path.name}.partial") for path in (self.arrow_journal, self.frames_journal))
        return *self.journals, *remade, self.arrow_partial, self.frames_partial, self.reserve

    @property
    def aside(self) -> Path:
        """The folder of a finished dataset while another one takes its place."""
        return self.out / f"{self.name}.replaced.partial"

    @property
    def finished(self) -> bool:
        """True if the container and both tables exist under their final names, and no unfinished file exists."""
        return not self.unfinished and all(os.path.lexists(p) for p in (self.container, self.arrow, self.frames))

    @property
    def unfinished(self) -> bool:
        """True if a partial container exists; a writer may be at work on it."""
        return os.path.lexists(self.container_partial)

    @property
    def container_partial(self) -> Path:
        """The container while it is written, whose lock its writer holds."""
        return self.members_partial if self.layout == "zip" else self.folder_partial


def locate(path: str | os.PathLike[str]) -> DatasetPaths:
    """Return the dataset that a user names by its ZIP, its folder, one of its tables, or by OUT/NAME.

    A ZIP is preferred to a folder of the same name unless the folder itself was named.
    Raises DatasetError if it is missing.
    """
    text = require_path(path)
    if "\0" in text:
        raise DatasetError(f"{text!r} is not a valid path")
    with explain_errors(f"{text}: cannot be accessed", OSError):
        given = Path(os.path.abspath(text))
    candidates = [candidate for candidate in _list_candidates(given) if candidate.name]
    for candidate in candidates:
        if _is_file(candidate.container) if candidate.layout == "zip" else is_folder_dataset(candidate.folder):
            return candidate
    for candidate in candidates:  # tables that lost their container; in OUT/NAME those of OUT/NAME/NAME.zip did not
        whole = _is_file(candidate.folder / f"{candidate.name}.zip")
        if not whole and (_is_file(candidate.arrow) or _is_file(candidate.frames)):
            return candidate
    refuse_unreadable(given)
    if re.match("[a-z0-9]+:/", text):
        raise DatasetError(f"{text}: is not on this machine; download it first")
    if hint := hint_recover(text):
        raise DatasetError(f"{text}: {hint.removeprefix('; ')}")
    found = "not a dataset" if os.path.lexists(given) else f"no such file or directory{list_beside(given)}"
    raise DatasetError(f"{text}: {found}; expected OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow")


def is_folder_dataset(path: Path) -> bool:
    """Return True for the folder of a dataset in the directory layout, not for one with such a folder of its name."""
    members = Path(os.path.abspath(path)) / os.path.basename(os.path.abspath(path))  # of `.`, too
    inside = DatasetPaths(members.parent, members.name, "directory")
    return os.path.isdir(members) and not (_is_file(inside.arrow) or _is_file(inside.frames))


def list_unfinished(out: Path) -> list[DatasetPaths]:
    """Return the unfinished datasets in a folder. Raises OSError."""
    found = []
    for name in sorted(os.listdir(out)):
        if name.endswith(".zip.partial"):
            found.append(DatasetPaths(out, name.removesuffix(".zip.partial"), "zip"))
        elif name.endswith(".partial") and not name.endswith(".replaced.partial") and os.path.isdir(out / name):
            found.append(DatasetPaths(out, name.removesuffix(".partial"), "directory"))
    return [paths for paths in found if paths.unfinished]


def find_unfinished_below(folder: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Yield OUT/NAME of each unfinished dataset in a folder and the folders in it, and what completes it."""
    for at, folders, _ in os.walk(folder):
        for place in (os.path.join(at, paths.name) for paths in list_unfinished(Path(at))):
            yield place, f"is unfinished: edgefirst-ros recover {place} completes it"
        folders[:] = sorted(
            one for one in folders if not one.endswith(".partial") and not is_folder_dataset(Path(at, one))
        )


def hint_recover(text: str) -> str:
    """Return a hint at `recover` for a path or folder with an unfinished dataset, `; ...`; empty for any other."""
    given = Path(os.path.abspath(text))
    if any(
        os.path.lexists(one.members_partial)
        for one in _list_candidates(given.parent / given.name.removesuffix(".partial"))
    ):
        return f"; it is unfinished: edgefirst-ros recover {text} completes it"
    with suppress(OSError):
        for paths in list_unfinished(given):
            place = os.path.join(text, paths.name)
            return f"; {place} is unfinished: edgefirst-ros recover {place} completes it"
    return ""


def refuse_unreadable(path: Path) -> None:
    """Raise DatasetError if the folders on the way to `path` may not be searched: whether it exists is unknown."""
    try:
        os.lstat(path)
    except PermissionError as error:
        raise DatasetError(f"{path}: cannot be accessed: {error.strerror}") from error
    except OSError:
        return


def _is_file(path: Path) -> bool:
    """True for anything that exists and is not a folder; opening it rejects all but regular files."""
    return os.path.lexists(path) and not os.path.isdir(path)


def _list_candidates(given: Path) -> list[DatasetPaths]:
    out, name = given.parent, given.name
    plain: list[DatasetPaths] = [DatasetPaths(out, name, "zip"), DatasetPaths(out, name, "directory")]
    folder = os.path.isdir(given)
    if folder:
        plain.reverse()
    for suffix in (".zip", ".frames.arrow", ".arrow", ".parquet", ".json"):
        stem = name.removesuffix(suffix)
        if stem and stem != name and not folder:
            named = [DatasetPaths(out, stem, "zip"), DatasetPaths(out, stem, "directory")]
            if suffix != ".zip" and out.name == stem:
                named.insert(0, DatasetPaths(out.parent, stem, "directory"))
            return named + plain
    return plain


_FLAT = re.compile(r"(?P<sequence>.+)_(?P<frame>[0-9]{1,10})", re.DOTALL)
"""A name in the flat folders of the vendor's client."""
_SINGLE = re.compile(r"(?P<name>.+)\.(?P<kind>[^.]+\.[^.]+)", re.DOTALL)
_STANDALONE = {".jpeg": "camera.jpeg", ".jpg": "camera.jpeg", ".png": "camera.png"}


class Key(NamedTuple):
    """Key of a sample; `frame`: None for a picture that does not belong to a sequence."""

    name: str
    frame: int | None


def order_of(key: Key) -> tuple[str, int]:
    """Return what samples are sorted by: the sequence, then the frame; a picture without a frame number comes first."""
    return key.name, -1 if key.frame is None else key.frame


def split_member(name: str) -> tuple[Key, str] | None:
    """Return (key, kind) of a member name, or None; single pictures without a frame number are samples too."""
    member = parse_member(name)
    if member is not None:
        return Key(member.sequence, member.frame), member.kind
    stem = name.rpartition("/")[2]
    match = _SINGLE.fullmatch(stem)
    if match is not None and streams.find_form(match["kind"]):
        return Key(match["name"], None), match["kind"]
    for ending, kind in _STANDALONE.items():
        if stem.endswith(ending) and len(stem) > len(ending):
            return Key(stem.removesuffix(ending), None), kind
    return None


def list_members(names: Sequence[str], keys: Callable[[], Collection[Key]]) -> list[tuple[Key, str] | None]:
    """Return (key, kind) of each member name, or None, also in folders without folders of sequences.

    There SEQUENCE_FRAME.jpeg is a frame of a sequence where the annotations have it; SEQUENCE_FRAME.camera.jpeg is one
    unless the annotations have the whole as a name. `keys` returns those of the annotations, and is called only then.
    """
    found = [split_member(name) for name in names]
    known: Collection[Key] | None = None
    for place, member in enumerate(found):
        match = _FLAT.fullmatch(member[0].name) if member and member[0].frame is None else None
        if member is None or match is None or int(match["frame"]) > MAX_FRAME:
            continue
        known = keys() if known is None else known
        framed = Key(match["sequence"], int(match["frame"]))
        if framed in known or (member[0] not in known and names[place].endswith(f".{member[1]}")):
            found[place] = framed, member[1]
    return found


def find_input(name: str) -> str:
    """Return the key of a sensor by any of its names; raises UsageError for an unknown one."""
    found = streams.find_key(str(name))
    if found is None or found == "model":
        known = sort_nearest(str(name), (sensor.key for sensor in SENSORS))
        raise UsageError(f"{shorten(repr(name), 80)} is not a sensor of a sample; known: {known}")
    return found


def find_instances(names: Iterable[str]) -> set[str]:
    """Return the keys of those sensors that are further instances, such as `camera.left`. Raises UsageError."""
    return {key for key in map(find_input, names) if streams.find_by_key(key).instance is not None}


_PAGE = 4096


class FrameSet:
    """A set of (sequence, frame), one bit each."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], int] = {}

    def add(self, sequence: str, frame: int) -> None:
        page, place = divmod(frame, _PAGE)
        self._pages[sequence, page] = self._pages.get((sequence, page), 0) | 1 << place

    def update(self, frames: Iterable[tuple[str, int]]) -> None:
        for frame in frames:
            self.add(*frame)

    def remove(self, sequence: str, frame: int) -> None:
        page, place = divmod(frame, _PAGE)
        self._pages[sequence, page] &= ~(1 << place)

    def __bool__(self) -> bool:
        return bool(self._pages)

    def __contains__(self, frame: tuple[str, int]) -> bool:
        page, place = divmod(frame[1], _PAGE)
        return bool(self._pages.get((frame[0], page), 0) >> place & 1)


class MemberIndex:
    """Set of members, a bit each. `recent` are the names added since it was last cleared."""

    def __init__(self) -> None:
        self.recent: list[str] = []
        self._frames = defaultdict[str, FrameSet](FrameSet)
        """The frames that have a kind of member."""

    def add(self, name: str) -> Member:
        """Add a member; raises DatasetError for an invalid name or one that was added before."""
        member = parse_member(name)
        if member is None or make_member_name(member.sequence, member.frame, member.kind) != name:
            raise DatasetError(f"{name!r} is not a member name; expected SEQUENCE/SEQUENCE_FRAME.KIND")
        if not self.add_member(member):
            raise DatasetError(f"{name} was written before; frame numbers must not repeat")
        self.recent.append(name)
        return member

    def add_member(self, member: Member) -> bool:
        """Add a member; return False if it was added before."""
        frames = self._frames[member.kind]
        if (member.sequence, member.frame) in frames:
            return False
        frames.add(member.sequence, member.frame)
        return True

    def kinds(self, sequence: str, frame: int) -> frozenset[str]:
        """Return the kinds of members that a frame has."""
        return frozenset(kind for kind, frames in self._frames.items() if (sequence, frame) in frames)

    def undo(self) -> list[str]:
        """Remove the recent members; return their names."""
        names, self.recent = self.recent, []
        for member in filter(None, map(parse_member, names)):
            self._frames[member.kind].remove(member.sequence, member.frame)
        return names


class NewMessages:
    """Finds new companion messages: one message can belong to several consecutive samples."""

    def __init__(self) -> None:
        self._last: dict[str, object] = {}

    def of(self, row: Mapping[str, object]) -> list[str]:
        """Return the companions, by column, whose message in the next frames row was in no row before."""
        found = []
        for column, stamp in row.items():
            base = column.removesuffix("_timestamp")
            if base != column and stamp is not None and stamp != self._last.get(base):
                self._last[base] = stamp
                found.append(base)
        return found


def add_counts(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of counts by name, sorted; a count of 0 stays."""
    total = Counter[str]()
    for one in found:
        total.update(one)
    return dict(sorted(total.items()))


def iter_keys(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Yield (sequence, frame) of every row of either table."""
    return zip(batch["name"].to_pylist(), batch["frame"].to_pylist(), strict=True)


class KeyOfKind(dict[str, str]):
    """{kind of member: key of its sensor}, also of kinds that are not listed: `lidar-rear.pcd` of a rig."""

    def __missing__(self, kind: str) -> str:
        return streams.find_by_kind(kind).key


def map_kinds(columns: Collection[str]) -> KeyOfKind:
    """Return {kind of member: sensor} of a dataset whose frames table has these columns.

    With `radar_clusters` columns, and no `radar_targets`, `radar.pcd` is of radar.clusters.
    """
    found, there = KeyOfKind((kind, streams.find_by_kind(kind).key) for kind in KINDS), streams.find_by_columns(columns)
    for sensor in reversed(there):
        found |= dict.fromkeys(sensor.kinds, sensor.key)
    return found


def _list_keys(name: object) -> tuple[str, ...]:
    return streams.list_keys(name) if isinstance(name, str) else ()


class Inputs(frozenset[str]):
    """Keys of sensors; `in` takes their other names too."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or not self.isdisjoint(_list_keys(name))


class BySensor(dict[str, T]):
    """Values by key of a sensor; `[]`, `in` and `get` take its other names too."""

    def __missing__(self, name: str) -> T:
        for key in _list_keys(name):
            if super().__contains__(key):
                return self[key]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(super(BySensor, self).__contains__(key) for key in (name, *_list_keys(name)))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a sensor, `default` without one."""
        try:
            return self[name]
        except KeyError:
            return default
