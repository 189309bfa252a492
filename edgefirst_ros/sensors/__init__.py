# SPDX-License-Identifier: Apache-2.0
"""One sensor a file: encode and decode side by side."""
