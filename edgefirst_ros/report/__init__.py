# SPDX-License-Identifier: Apache-2.0
"""Looking at datasets and recordings: one page of facts, or a viewer that moves through time."""
