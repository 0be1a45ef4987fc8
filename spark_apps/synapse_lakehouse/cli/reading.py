"""The lake, opened for reading by a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.embedded.services import connected
from synapse_lakehouse.lake import duck
from synapse_lakehouse.settings import Settings

Release = Annotated[int | None, typer.Option("--release", min=1, help="Number of a release; the latest if omitted.")]


@contextmanager
def lake() -> Iterator[tuple[Settings, DuckDBPyConnection]]:
    """Settings in force and DuckDB on the lake, with the catalog's server running meanwhile.

    :raises LakeError: when nothing was ever written to the lake.
    """
    given = Settings()
    if not given.lakehouse_catalog_uri and not (given.lakehouse_home / "postgres").exists():
        raise duck.LakeError(
            f"There is no lake in {given.lakehouse_home} yet. Run `make run` first, or set LAKEHOUSE_HOME to the "
            "folder of one."
        )
    with connected(given, source=False) as settings, duck.connect(settings) as connection:
        yield settings, connection
