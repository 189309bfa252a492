# SPDX-License-Identifier: Apache-2.0
"""NCore V4: a dataset as NCore sequences, written and read by NVIDIA's own library.

Source: NCore documentation, "Data Formats" (V4); nvidia-ncore 19.8.
"""
