# SPDX-License-Identifier: Apache-2.0
"""Hostile input: seeds, mutations that know the formats, what is fed with them, and the process that does it."""

KINDS = ("mcap", "cdr", "h264", "h265", "jpeg", "png", "pcd", "zip", "arrow", "yaml", "left", "meta", "store", "place")
