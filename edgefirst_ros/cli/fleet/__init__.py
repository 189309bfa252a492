# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet`: one verb a file."""
