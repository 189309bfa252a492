# SPDX-License-Identifier: Apache-2.0
"""Converts many recordings on an engine, from and to object storage; a state file per recording records its result."""
