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

_MAX_LISTED: Final = 20


@app.callback()
def state() -> None:
    """Restore room state that Synapse's database lost."""


@app.command()
def restore_plan(
    groups: Annotated[
        list[int] | None, typer.Argument(metavar="[GROUP]...", help="Numbers of state groups.", min=0)
    ] = None,
    rooms: Annotated[
        list[str] | None, typer.Option("--room", help="ID of a room, for all of its state groups; repeatable.")
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Also correct rows whose event differs from the event in the right state, and delete rows that the "
            "right state lacks.",
        ),
    ] = False,
) -> None:
    """Print SQL that restores lost rows of state groups. Only earlier releases have these rows.

    Synapse never changes the state of a group, so the oldest readable release has the right state. If the newest
    release has another state, the SQL restores the group's rows from the last release that has the right state. If a
    group has several rows for one piece of state, the SQL restores the group's rows from the oldest readable release.

    The command changes nothing. Stop Synapse, make a backup, review the SQL, and run it with psql as the owner of
    Synapse's tables. The SQL rebuilds the indexes, then inserts the rows that are absent.
    """
    if not groups and not rooms:
        raise typer.BadParameter("Name state groups, or rooms with --room.")
    with lake_session.open_lake() as (settings, connection):
        lost = find_lost_rows(connection, settings, groups or (), rooms or ())
        for line in _describe(lost, overwrite=overwrite):
            output.echo(f"-- {line}")
        if any(lost.releases.values()) or (overwrite and lost.changed):
            for line in _iterate_sql(connection, lost.changed if overwrite else ()):
                output.echo(line)


def _describe(lost: LostRows, *, overwrite: bool) -> Iterator[str]:
    newest, oldest = lost.newest, lost.oldest
    yield (
        f"State of the groups in release {newest.number} ({output.format_time(newest.published_at)}), compared with"
        f" the releases from {oldest.number} on."
    )
    for name, by_release in lost.releases.items():
        for release, rows in by_release.items():
            yield f"{rows:,} rows of {name} are absent. Release {release} is the newest release that has them."
    if not any(lost.releases.values()):
        yield "No row is absent."
    if lost.changed:
        effect = "restores" if overwrite else "does not change"
        yield f"{len(lost.changed):,} rows differ from the right state of their group. This SQL {effect} them:"
    for group, type_, state_key, before, now, release in lost.changed[:_MAX_LISTED]:
        yield to_printable(
            f"state group {group}, {type_} {state_key!r}: {before or 'no row'} in release {release}, {now} now"
        )
    if lost.inheriting:
        yield (
            f"{len(lost.inheriting):,} state groups inherit pieces of state that their right state lacks. This SQL does"
            f" not change their predecessors: {', '.join(map(str, lost.inheriting[:_MAX_LISTED]))}"
        )
    if lost.reused:
        yield (
            f"{lost.reused:,} state groups were created for another event than the groups with the same numbers in"
            " earlier releases. The rows of those earlier groups are left out."
        )


def _iterate_sql(connection: DuckDBPyConnection, changed: Sequence[Sequence[object]]) -> Iterator[str]:
    yield "-- Review this SQL. Stop Synapse and the compressors before you run it: psql -X -v ON_ERROR_STOP=1 -f FILE"
    yield "-- If Synapse stores state in a second database (SYNAPSE_STATE_DSN), run this SQL there."
    yield "SET client_encoding = 'UTF8';"
    # Synapse reads the state by the indexes of all three tables.
    for table in STATE_TABLES:
        yield f"REINDEX TABLE {table.name};"
    yield from build_restore_sql(
        ((table.name, table.columns, table.key, iterate_lost_rows(connection, table)) for table in STATE_TABLES),
        [row[:-1] for row in changed],
    )
