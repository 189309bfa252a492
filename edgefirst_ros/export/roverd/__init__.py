# SPDX-License-Identifier: Apache-2.0
"""roverd, the format of the red-rover rig: a folder for each drive, in it one for each sensor, a file for each channel.

Source: roverd, "data interface".
"""
