# SPDX-License-Identifier: Apache-2.0
"""The street: first pass, frames, samples; a conversion and a capture are its two callers."""
