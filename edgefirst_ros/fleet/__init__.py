# SPDX-License-Identifier: Apache-2.0
"""Many recordings on an engine, from and to object storage: what is done is known by states, one a recording."""
