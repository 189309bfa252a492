# SPDX-License-Identifier: Apache-2.0
"""Labels for training, and of other tools: COCO and YOLO, out with the pictures and in by their names."""
