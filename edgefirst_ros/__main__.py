# SPDX-License-Identifier: Apache-2.0
"""`python -m edgefirst_ros` is `edgefirst-ros`."""

from edgefirst_ros.cli import main

main()
