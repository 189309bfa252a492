# SPDX-License-Identifier: Apache-2.0
"""Small JPEG and PNG files made by Pillow."""

import io

import numpy as np
from PIL import Image


def jpeg(**options):
    buffer = io.BytesIO()
    gradient = np.add.outer(np.arange(48), np.arange(64)).astype(np.uint8)
    Image.fromarray(gradient).convert("RGB").save(buffer, "JPEG", **options)
    return buffer.getvalue()


def png(**options):
    buffer = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(buffer, "PNG", **options)
    return buffer.getvalue()
