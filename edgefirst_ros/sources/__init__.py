# SPDX-License-Identifier: Apache-2.0
"""Where messages come from."""
