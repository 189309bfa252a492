# SPDX-License-Identifier: Apache-2.0
"""Members on disk: ZIP and folder, their content, locks, room, syncing."""
