# SPDX-License-Identifier: Apache-2.0
"""One time base; frames from streams."""
