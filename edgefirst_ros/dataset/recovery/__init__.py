# SPDX-License-Identifier: Apache-2.0
"""Unfinished datasets: what remains of them, how they are completed."""
