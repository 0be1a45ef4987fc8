"""The lake, opened for reading by a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.local.services import connect_services

ReleaseOption = Annotated[
    int | None, typer.Option("--release", min=1, help="Number of a release; the latest if omitted.")
]


def may_have_lake(settings: Settings) -> bool:
    """Whether there is a lake to look for: a catalog is named, or the embedded one was used."""
    return bool(settings.lakehouse_catalog_uri) or (settings.lakehouse_home / "postgres").exists()


@contextmanager
def open_lake() -> Iterator[tuple[Settings, DuckDBPyConnection]]:
    """Settings in force and DuckDB on the lake, with the catalog's server running meanwhile.

    :raises LakeReadError: when nothing was ever written to the lake.
    """
    given = Settings()
    if not may_have_lake(given):
        raise LakeReadError(
            f"There is no lake in {given.lakehouse_home} yet. Run `make run` first, or set LAKEHOUSE_HOME to the "
            "folder of one."
        )
    with (
        connect_services(given, source=False, latest=True) as settings,
        duckdb_reader.open_duckdb(settings) as connection,
    ):
        yield settings, connection
