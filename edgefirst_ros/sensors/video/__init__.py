# SPDX-License-Identifier: Apache-2.0
"""H.264 and H.265: headers, which pictures are clean, decoding, groups of pictures side by side."""
