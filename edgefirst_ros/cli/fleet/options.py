# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs of a fleet have."""

from __future__ import annotations

import typer

CLUSTER = typer.Option(
    metavar="ADDRESS|FILE", help="Scheduler of a Dask cluster: tcp://HOST:8786, tls://HOST:8786 or its scheduler file."
)
WORKERS = typer.Option(metavar="N", min=1, max=1024, help="Workers on this machine; one per processor if not given.")
SCRATCH = typer.Option(metavar="DIR", help="Where workers keep recordings on the way; the system's temporary folder.")
PLACE = typer.Argument(metavar="DST", help="Folder or s3://BUCKET/PREFIX that fleet convert wrote to.")
WHERE = typer.Option(
    metavar="SQL", help='Only recordings whose row in the catalogue meets a condition, such as "samples > 100".'
)
