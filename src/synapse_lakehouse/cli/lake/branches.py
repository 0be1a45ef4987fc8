"""``lakehouse branches``: list and drop branches of unpublished runs."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import run_branches
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.printable_text import to_printable

app = typer.Typer(help="List or drop the branches of unpublished runs.", invoke_without_command=True)

_COLUMNS: Final = ("branch", "state", "tables", "written_at", "age_hours", "run")


@app.callback()
def branches(ctx: typer.Context, format: output.FormatOption = output.OutputFormat.TABLE) -> None:
    """List or drop the branches of unpublished runs."""
    if ctx.invoked_subcommand is not None:
        return
    now = datetime.now(UTC)
    with lake_session.open_lake() as (settings, connection):
        existing = run_branches.list_branches(connection, settings)
        lease = run_branches.read_lease_holder(connection, settings)
    active = lease.branch if lease and now < lease.until else None
    rows = [
        (
            branch.name,
            "active" if branch.name == active else "remaining",
            len(branch.tables),
            branch.written_at.replace(microsecond=0),
            round((now - branch.written_at).total_seconds() / 3600, 1),
            branch.run_id,
        )
        for branch in existing
    ]
    output.write_rows(_COLUMNS, rows, format)


@app.command()
def drop(names: Annotated[list[str], typer.Argument(help="Names from `lakehouse branches`.")]) -> None:
    """Drop branches from all tables. The command fails while a run is active."""
    with lake_session.open_lake() as (settings, connection):
        existing = {branch.name for branch in run_branches.list_branches(connection, settings)}
        if unknown := [name for name in names if name not in existing]:
            raise LakeReadError(
                f"No table has a branch {to_printable(' or '.join(unknown))}. Nothing was dropped. "
                "`lakehouse branches` lists all branches."
            )
        for name, tables in drop_branches(settings, names):
            output.echo(f"Dropped {to_printable(name)} from {tables} table{'' if tables == 1 else 's'}.")


def drop_branches(settings: Settings, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Drop branches under the lake lease; yield each name with the number of tables that had it.

    The expired lease of a crashed run is acquired. The next run cannot resume a copy on a dropped branch.

    :raises LeaseError: if a run is active.
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
