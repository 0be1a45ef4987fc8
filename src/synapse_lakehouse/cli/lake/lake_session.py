"""Open the lake for reading in a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.local.services import connect_services

ReleaseOption = Annotated[int | None, typer.Option("--release", min=1, help="Release number; default: the latest.")]


def may_have_lake(settings: Settings) -> bool:
    """Return whether a lake may exist: a catalog is set, or the embedded catalog was used."""
    return bool(settings.lakehouse_catalog_uri) or (settings.lakehouse_home / "postgres").exists()


@contextmanager
def open_lake() -> Iterator[tuple[Settings, DuckDBPyConnection]]:
    """Yield the settings and a DuckDB connection to the lake; the catalog's server runs meanwhile.

    :raises LakeReadError: if no lake exists, or if an earlier version of the project wrote it.
    """
    configured = Settings()
    if not may_have_lake(configured):
        raise LakeReadError(
            f"There is no lake in {configured.lakehouse_home} yet. Run `make run` first, or set LAKEHOUSE_HOME to a "
            "folder with a lake."
        )
    with (
        connect_services(configured, source=False, latest=True) as settings,
        duckdb_reader.open_duckdb(settings) as connection,
    ):
        duckdb_reader.require_current_format(connection, settings)
        yield settings, connection
