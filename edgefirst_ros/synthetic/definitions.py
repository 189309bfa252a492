# SPDX-License-Identifier: Apache-2.0
"""Message texts (`ros2msg`) as a recorder embeds them with each schema."""

from __future__ import annotations

_FIELDS = {
    "builtin_interfaces/Time": "int32 sec; uint32 nanosec",
    "builtin_interfaces/Duration": "int32 sec; uint32 nanosec",
    "std_msgs/Header": "builtin_interfaces/Time stamp; string frame_id",
    "geometry_msgs/Vector3": "float64 x; float64 y; float64 z",
    "geometry_msgs/Quaternion": "float64 x; float64 y; float64 z; float64 w",
    "geometry_msgs/Transform": "geometry_msgs/Vector3 translation; geometry_msgs/Quaternion rotation",
    "geometry_msgs/TransformStamped":
        "std_msgs/Header header; string child_frame_id; geometry_msgs/Transform transform",
    "sensor_msgs/RegionOfInterest":
        "uint32 x_offset; uint32 y_offset; uint32 height; uint32 width; bool do_rectify",
    "sensor_msgs/CameraInfo":
        "std_msgs/Header header; uint32 height; uint32 width; string distortion_model; float64[] d; float64[9] k; "
        "float64[9] r; float64[12] p; uint32 binning_x; uint32 binning_y; sensor_msgs/RegionOfInterest roi",
    "sensor_msgs/CompressedImage": "std_msgs/Header header; string format; uint8[] data",
    "sensor_msgs/Image":
        "std_msgs/Header header; uint32 height; uint32 width; string encoding; uint8 is_bigendian; uint32 step; "
        "uint8[] data",
    "sensor_msgs/Imu":
        "std_msgs/Header header; geometry_msgs/Quaternion orientation; float64[9] orientation_covariance; "
        "geometry_msgs/Vector3 angular_velocity; float64[9] angular_velocity_covariance; "
        "geometry_msgs/Vector3 linear_acceleration; float64[9] linear_acceleration_covariance",
    "sensor_msgs/NavSatStatus": "int8 status; uint16 service",
    "sensor_msgs/NavSatFix":
        "std_msgs/Header header; sensor_msgs/NavSatStatus status; float64 latitude; float64 longitude; "
        "float64 altitude; float64[9] position_covariance; uint8 position_covariance_type",
    "sensor_msgs/PointField": "string name; uint32 offset; uint8 datatype; uint32 count",
    "sensor_msgs/PointCloud2":
        "std_msgs/Header header; uint32 height; uint32 width; sensor_msgs/PointField[] fields; bool is_bigendian; "
        "uint32 point_step; uint32 row_step; uint8[] data; bool is_dense",
    "ffmpeg_image_transport_msgs/FFMPEGPacket":
        "std_msgs/Header header; int32 width; int32 height; string encoding; uint64 pts; uint8 flags; "
        "bool is_bigendian; uint8[] data",
    "foxglove_msgs/CompressedVideo":
        "builtin_interfaces/Time timestamp; string frame_id; uint8[] data; string format",
    "edgefirst_msgs/RadarCube":
        "std_msgs/Header header; uint64 timestamp; uint8[] layout; uint16[] shape; float32[] scales; int16[] cube; "
        "bool is_complex",
    "edgefirst_msgs/RadarInfo":
        "std_msgs/Header header; string center_frequency; string frequency_sweep; string range_toggle; "
        "string detection_sensitivity; bool cube",
    "edgefirst_msgs/Track": "string id; int32 lifetime; builtin_interfaces/Time created",
    "edgefirst_msgs/Box":
        "float32 center_x; float32 center_y; float32 width; float32 height; string label; float32 score; "
        "float32 distance; float32 speed; edgefirst_msgs/Track track",
    "edgefirst_msgs/Mask":
        "uint32 height; uint32 width; uint32 length; string encoding; uint8[] mask; bool boxed",
    "edgefirst_msgs/Detect":
        "std_msgs/Header header; builtin_interfaces/Time input_timestamp; builtin_interfaces/Time model_time; "
        "builtin_interfaces/Time output_time; edgefirst_msgs/Box[] boxes",
    "edgefirst_msgs/Model":
        "std_msgs/Header header; builtin_interfaces/Duration input_time; builtin_interfaces/Duration model_time; "
        "builtin_interfaces/Duration output_time; builtin_interfaces/Duration decode_time; "
        "edgefirst_msgs/Box[] boxes; edgefirst_msgs/Mask[] masks",
    "edgefirst_msgs/ModelInfo":
        "std_msgs/Header header; uint32[] input_shape; uint8 input_type; uint32[] output_shape; uint8 output_type; "
        "string[] labels; string model_type; string model_format; string model_name; uint8 input_dtype; "
        "uint8 output_dtype",
}  # fmt: skip
"""Fields of each type, in order. Source: the ROS 2 interface packages."""


def make_definition(name: str) -> bytes:
    """Text of a type (`pkg/msg/Type`) followed by those of all types in it, as `ros2msg` asks for."""
    own = name.replace("/msg/", "/")
    parts = [_read_definition(own)]
    parts += [f"{'=' * 80}\nMSG: {used}\n{_read_definition(used)}" for used in _list_used_types(own)]
    return "\n".join(parts).encode()


def _read_definition(name: str) -> str:
    return _FIELDS[name].replace("; ", "\n")


def _list_used_types(name: str) -> list[str]:
    """Types inside a type, each once, outermost first."""
    found: list[str] = []
    for line in _FIELDS[name].split("; "):
        inner = line.split(" ")[0].removesuffix("[]")
        if inner in _FIELDS:
            found += [inner, *_list_used_types(inner)]
    return list(dict.fromkeys(found))
