# SPDX-License-Identifier: Apache-2.0
"""A dataset or recording in rerun's viewer: logged once, shown by the viewer's own program."""
