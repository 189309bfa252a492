# SPDX-License-Identifier: Apache-2.0
"""L5Kit: where the vehicle was, and the boxes in space around it, as scenes.

Source: L5Kit 1.5.0, l5kit/data/zarr_dataset.py and labels.py; its documents, "Dataset Formats in L5Kit".
"""
