# SPDX-License-Identifier: Apache-2.0
"""Rows: journals while they are written, Arrow files when they are complete, their other forms."""
