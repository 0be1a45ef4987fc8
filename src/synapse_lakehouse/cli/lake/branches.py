"""``lakehouse branches``: list and drop branches of unpublished runs."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session, list_branches
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.printable_text import to_printable

app = typer.Typer(help="List or drop the branches of unpublished runs.", invoke_without_command=True)

_COLUMNS: Final = ("branch", "state", "tables", "written_at", "age_hours", "run")


@app.callback()
def branches(
    ctx: typer.Context,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """List or drop the branches of unpublished runs."""
    if ctx.invoked_subcommand is not None:
        return
    now = datetime.now(UTC)
    with lake_session.open_lake() as (settings, connection):
        found = list_branches.list_branches(connection, settings)
        holding = list_branches.read_lease_holder(connection, settings)
    at_work = holding.branch if holding and now < holding.until else None
    rows = [
        (
            one.name,
            "at work" if one.name == at_work else "left",
            len(one.tables),
            one.written_at.replace(microsecond=0),
            round((now - one.written_at).total_seconds() / 3600, 1),
            one.run_id,
        )
        for one in found
    ]
    output.write_rows(_COLUMNS, rows, format)


@app.command()
def drop(names: Annotated[list[str], typer.Argument(help="Branches as `lakehouse branches` lists them.")]) -> None:
    """Drop branches from all tables; fails while a run is active."""
    with lake_session.open_lake() as (settings, connection):
        known = {one.name for one in list_branches.list_branches(connection, settings)}
        if unknown := [name for name in names if name not in known]:
            raise LakeReadError(
                f"No table has a branch {to_printable(' or '.join(unknown))}. Nothing was dropped. "
                "`lakehouse branches` lists all branches."
            )
        for name, tables in drop_branches(settings, names):
            output.echo(f"Dropped {to_printable(name)} from {tables} table{'' if tables == 1 else 's'}.")


def drop_branches(settings: Settings, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Drop branches under the lake lease; yield each name with the number of tables that had it.

    The expired lease of a crashed run is acquired. The next run can still resume its copy, unless it is named.

    :raises LeaseError: when a run is active.
    """
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.iceberg.lease.lease import Lease
    from synapse_lakehouse.iceberg.write import branches

    with closing(open_catalog(settings)) as catalog:
        holder = f"lakehouse branches drop, process {os.getpid()} on {socket.gethostname()}"
        lease = Lease(catalog, holder, "", settings.lakehouse_lease_seconds)
        lease.acquire()
        try:
            with lease.heartbeat():
                for name in dict.fromkeys(names):
                    yield name, branches.drop_branch(catalog, name)
        finally:
            lease.release()
