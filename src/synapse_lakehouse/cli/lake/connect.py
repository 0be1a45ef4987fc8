"""``lakehouse connect``: print a configuration with which another tool reads one release, without passwords."""

import signal
from contextlib import suppress
from typing import Annotated

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import connect_snippets, lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import get_postgres_parameters
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local import child_processes


def connect(
    tool: Annotated[connect_snippets.Tool, typer.Argument(help="The tool that reads the lake.")],
    release: lake_session.ReleaseOption = None,
    hold: Annotated[bool, typer.Option("--hold", help="Keep the embedded catalog running until Ctrl-C.")] = False,
) -> None:
    """Print a configuration with which Spark, DuckDB, PyIceberg or Trino reads one release.

    Passwords are not printed: the tool reads them from environment variables.
    """
    with child_processes.interrupt_on_signals(), lake_session.open_lake() as (settings, connection):
        at = duckdb_reader.get_release(connection, settings, release)
        output.echo(connect_snippets.render_snippet(tool, connection, settings, at))
        if Settings().lakehouse_catalog_uri or tool is connect_snippets.Tool.DUCKDB:
            return
        password = settings.lakehouse_home / f"postgres.{get_postgres_parameters(settings)['user']}.password"
        output.echo(
            "The catalog is in the embedded PostgreSQL. It runs on a random port, and only while a process of the "
            f"lakehouse runs.{'' if hold else ' With --hold the server runs until Ctrl-C, on the port above.'}\n"
            f'Its password: export PGPASSWORD="$(cat {password})"',
            err=True,
        )
        if hold:
            with suppress(KeyboardInterrupt):
                signal.pause()
