"""``lakehouse state restore-plan``: SQL that restores lost rows of room state from earlier releases."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.cli.state.lost_rows import STATE_TABLES, LostRows, find_lost_rows, iterate_lost_rows
from synapse_lakehouse.cli.state.restore_sql import build_restore_sql
from synapse_lakehouse.printable_text import to_printable

app = typer.Typer(help="Restore room state that Synapse's database lost.", no_args_is_help=True)

_MAX_CHANGED: Final = 20


@app.callback()
def state() -> None:
    """Restore room state that Synapse's database lost."""


@app.command()
def restore_plan(
    groups: Annotated[list[int] | None, typer.Argument(metavar="[GROUP]...", help="State groups.", min=0)] = None,
    room: Annotated[str | None, typer.Option(help="All state groups of this room.")] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Also restore rows that have another event than before, and delete rows that are new."
        ),
    ] = False,
) -> None:
    """Print SQL that restores lost rows of state groups. Only earlier releases have these rows.

    The command changes nothing. Stop Synapse, have a backup, review the SQL, and run it with psql as the owner of
    Synapse's tables. The SQL rebuilds the indexes, then inserts each row where it is absent.
    """
    if not groups and room is None:
        raise typer.BadParameter("Name state groups, or a room with --room.")
    with lake_session.open_lake() as (settings, connection):
        lost = find_lost_rows(connection, settings, groups or (), room)
        for line in _describe(lost, overwrite=overwrite):
            output.echo(f"-- {line}")
        if any(lost.releases.values()) or (overwrite and lost.changed):
            for line in _iterate_sql(connection, lost, lost.changed if overwrite else ()):
                output.echo(line)


def _describe(lost: LostRows, *, overwrite: bool) -> Iterator[str]:
    newest = lost.newest
    yield f"Rows that release {newest.number} ({output.format_time(newest.published_at)}) lacks."
    for name, by_release in lost.releases.items():
        for release, rows in by_release.items():
            yield f"{rows:,} rows of {name}: release {release} is the newest release that has them."
    if not any(lost.releases.values()):
        yield f"No release from {lost.oldest.number} on has such rows. Older releases are no longer readable."
    if lost.changed:
        effect = "restores" if overwrite else "does not change"
        yield f"{len(lost.changed):,} rows have another event than before, or are new. This SQL {effect} them:"
    for group, type_, state_key, before, now in lost.changed[:_MAX_CHANGED]:
        yield to_printable(f"state group {group}, {type_} {state_key!r}: {before or 'no row'} before, {now} now")


def _iterate_sql(connection: DuckDBPyConnection, lost: LostRows, changed: Sequence[Sequence[object]]) -> Iterator[str]:
    affected = [table for table in STATE_TABLES if lost.releases[table.name]]
    reindexed = {table.name for table in affected} | ({"state_groups_state"} if changed else set())
    yield "-- Review this SQL. Stop Synapse and the compressors before you run it: psql -X -v ON_ERROR_STOP=1 -f FILE"
    yield "SET client_encoding = 'UTF8';"
    for name in sorted(reindexed):
        yield f"REINDEX TABLE {name};"
    yield from build_restore_sql(
        ((table.name, table.columns, table.key, iterate_lost_rows(connection, table)) for table in affected), changed
    )
