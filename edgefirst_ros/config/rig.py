# SPDX-License-Identifier: Apache-2.0
"""Rig of a vehicle: which topic each sensor has, for vehicles whose topics are not named like the device's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from edgefirst_ros import streams
from edgefirst_ros.config.values import Model, Seconds, define
from edgefirst_ros.errors import sort_nearest
from edgefirst_ros.streams import Sensor

INLINE = "{"
"""First character of a rig that is given as text; any other text is the path of a YAML file."""

Frame = Annotated[str, Field(min_length=1), AfterValidator(lambda name: name.removeprefix("/"))]
"""Name of a frame, without the leading slash that ROS 1 may write."""


class StreamSettings(Model):
    """How the messages of one companion sensor join the frames."""

    tolerance: Seconds | None = define(
        None, "Largest time difference of a message to its frame, s; the common tolerance if unset"
    )
    offset: float = define(0.0, "Added to the sensor's stamps, s", ge=-60.0, le=60.0)
    reuse: bool = define(True, "Use a message for several frames; if false, only for the nearest one")


class RigSensor(StreamSettings):
    """A sensor of a rig: its topics, and how its messages join the frames."""

    topic: str | None = define(None, "Its topic, or a glob that matches exactly one", min_length=1)
    info: str | None = define(None, "Topic of CameraInfo of a camera, or of ModelInfo of a model", min_length=1)
    masks: str | None = define(None, "Topic of masks without a header, of a model", min_length=1)
    tf: tuple[Frame, Frame] | None = define(None, "Two frames of /tf, fixed and moving, instead of a topic of poses")


def _flatten(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, its settings): `lidar: {points: {topic: x}}` is written `lidar.points: {topic: x}` or `: x` too."""
    own = {name: value for name, value in content.items() if above and name in RigSensor.model_fields}
    for name, value in content.items():
        if name in own:
            continue
        key = f"{above}{name}"
        nested = isinstance(value, Mapping) and (
            not (key in streams.RIG_KEYS or streams.is_key(key))
            or any(isinstance(part, Mapping) for part in value.values())
        )
        for part, topic in value.items() if isinstance(value, Mapping) and not nested else ():
            near = get_close_matches(str(part), RigSensor.model_fields, 1, 0.7)
            known = part in RigSensor.model_fields or not (near or streams.is_key(f"{key}.{part}"))
            if isinstance(topic, str) and not known:
                hint = f"did you mean {near[0]!r}?" if near else f"an instance is written `{key}.{part}: {topic}`"
                raise ValueError(f"{key}: unknown setting {part!r}; {hint}")
        if nested:
            yield from _flatten(value, f"{key}.")
        else:
            yield key, {"topic": value} if isinstance(value, str) else value
    if own:
        yield above.rstrip("."), own


class Rig(Model):
    """The sensors of a vehicle by their keys, and excluded topics."""

    sensors: dict[str, RigSensor] = Field(default_factory=dict)
    base_frame: Frame | None = define(None, "Frame of the vehicle in the transforms, if it is not named base_link")
    unused: tuple[str, ...] = define((), "Globs of topics to ignore without a note")

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or set(value) == {"sensors"}:
            return value
        plain = {name: value[name] for name in ("base_frame", "unused") if value.get(name) is not None}
        if isinstance(plain.get("unused"), str):
            plain["unused"] = [plain["unused"]]
        rest = {str(name): part for name, part in value.items() if name not in ("base_frame", "unused")}
        return {**plain, "sensors": dict(_flatten(rest))}

    @property
    def instances(self) -> list[Sensor]:
        """The further instances of sensors, such as `lidar.points.rear`."""
        known = (streams.find_by_key(key) for key in self.sensors if key not in streams.ROLES)
        return [sensor for sensor in known if sensor.instance is not None]

    @model_serializer
    def _plain(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            key: {name: value for name, value in sensor if value != RigSensor.model_fields[name].default}
            for key, sensor in self.sensors.items()
        }
        found |= {"base_frame": self.base_frame} if self.base_frame is not None else {}
        return found | ({"unused": list(self.unused)} if self.unused else {})

    @field_validator("sensors")
    @classmethod
    def _known_keys(cls, value: dict[str, RigSensor]) -> dict[str, RigSensor]:
        for key, sensor in value.items():
            check_key(key)
            if key not in streams.RIG_KEYS and sensor.topic is None:
                raise ValueError(f"{key}: expected a topic: an instance has no usual name")
            camera = key.partition(".")[0] == streams.CAMERA.key
            allowed = {"info": camera or key == "model", "masks": key == "model", "tf": key == "pose"}
            allowed["tolerance"] = key not in streams.ROLES
            wrong = [name for name, fits in allowed.items() if getattr(sensor, name) is not None and not fits]
            wrong += ["reuse"] if not sensor.reuse and key in streams.ROLES else []
            wrong += ["offset"] if sensor.offset and key in ("model", "boxes3d") else []
            if wrong:
                raise ValueError(f"{key}: {wrong[0]} is not for this sensor")
            if sensor.tf is not None and sensor.topic is not None:
                raise ValueError(f"{key}: topic and tf cannot be combined")
        return value


def check_key(key: str) -> None:
    """Raise ValueError if a key of a rig is neither a sensor nor an instance of one of which a sample has several."""
    if key in streams.RIG_KEYS:
        return
    first = next((known for known in streams.RIG_KEYS if key.startswith(f"{known}.")), None)
    if first is not None:
        name = key.removeprefix(f"{first}.")
        if not streams.is_key(f"{first}.a"):
            raise ValueError(
                f"{key}: a sample has one {first}: name its topic under {first}, other topics under unused"
            )
        if not streams.is_key(key) or name in RigSensor.model_fields:
            raise ValueError(f"{key}: {name!r} cannot name an instance; expected 1 to 32 of a-z, 0-9 and _, no setting")
        return
    base, _, name = key.partition(".")
    short = [f"{first}.{name}" for first in streams.list_keys(base)]  # `lidar.rear` of `lidar.points.rear`
    near = streams.find_key(key) or next(iter(get_close_matches(key, streams.RIG_KEYS, 1, 0.8)), None)
    near = near or next(filter(streams.is_key, short), None)
    hint = f"; did you mean {near}?" if near is not None else ""
    known = sort_nearest(key, (*streams.RIG_KEYS, "base_frame", "unused"))
    raise ValueError(f"unknown sensor {key!r}{hint}; known: {known}")


def read_rig(value: Any) -> Any:
    """Return the content of a rig given as the path of a YAML file, or as text `{camera: /front/image_raw}`."""
    if not isinstance(value, str):
        return value
    from edgefirst_ros.config.yaml_file import read_text, read_yaml  # PyYAML takes long to load
    from edgefirst_ros.errors import UsageError

    try:
        content = read_text(value, "rig") if value.lstrip().startswith(INLINE) else read_yaml(Path(value).expanduser())
    except UsageError as error:
        raise ValueError(str(error)) from None
    if isinstance(content, dict) and isinstance(content.get("rig"), dict):
        content = content["rig"]
    if not isinstance(content, dict):
        raise ValueError(f"{value[:80]}: expected `key: value` lines of a rig")
    return content


OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}]}
RigText = Annotated[Rig | None, BeforeValidator(read_rig), WithJsonSchema(OPTIONAL_TEXT)]
"""A rig; on the command line and in ROS parameters it is text."""
