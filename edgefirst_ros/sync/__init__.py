# SPDX-License-Identifier: Apache-2.0
"""Time base of a recording, and alignment of messages to frames."""
