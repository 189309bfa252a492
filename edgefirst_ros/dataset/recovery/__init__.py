# SPDX-License-Identifier: Apache-2.0
"""Unfinished datasets: what is left of them, how they are completed."""
