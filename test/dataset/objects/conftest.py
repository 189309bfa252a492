# SPDX-License-Identifier: Apache-2.0
"""A real S3 server, and a network between it and the code that can be made to fail."""

from object_server import line, s3

__all__ = ["line", "s3"]
