# SPDX-License-Identifier: Apache-2.0
"""Members on disk: ZIP and folder, what is in them, locks, room, syncing."""
