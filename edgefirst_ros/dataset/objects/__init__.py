# SPDX-License-Identifier: Apache-2.0
"""Folders and buckets alike: objects listed, read, fetched whole and put, with their checksums compared."""
