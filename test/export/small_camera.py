# SPDX-License-Identifier: Apache-2.0
"""The camera of the handmade NCore stores."""

import numpy as np


def small_camera(lib):
    """The model of a camera of 8 x 6 pixels, without distortion."""
    return lib.OpenCVPinholeCameraModelParameters(
        resolution=np.array([8, 6], np.uint64),
        shutter_type=lib.ShutterType.GLOBAL,
        principal_point=np.array([4.5, 3.5], "f4"),
        focal_length=np.array([5, 6], "f4"),
        radial_coeffs=np.zeros(6, "f4"),
        tangential_coeffs=np.zeros(2, "f4"),
        thin_prism_coeffs=np.zeros(4, "f4"),
    )
