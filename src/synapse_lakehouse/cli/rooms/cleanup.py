"""``lakehouse rooms cleanup``: rooms without users of this server, and the calls that delete them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.printable_text import format_bytes

app = typer.Typer(help="Find rooms to clean up.", no_args_is_help=True)

_ADMIN_API: Final = "/_synapse/admin"
_BODY: Final = '{"purge": true, "block": false}'
_SHOWN: Final = 50


class CleanupRoom(NamedTuple):
    """A row of ``gold.room_cleanup``."""

    room_id: str
    is_blocked: bool
    joined_members: int
    pending_local_users: int
    unforgotten_local_users: int
    last_event_at: datetime | None
    stored_rows: int
    estimated_bytes: int | None
    media_events: int


@app.callback()
def rooms() -> None:
    """Find rooms to clean up."""


@app.command()
def cleanup(
    idle_days: Annotated[
        int, typer.Option(min=0, max=100_000, help="Only rooms without an event in the last N days.", metavar="N")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rooms.")] = _SHOWN,
    release: lake_session.ReleaseOption = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """List rooms that no user of this server has joined, largest first, and the calls that delete them.

    The command makes no call. Review the calls, and send them to Synapse's admin API with an administrator's token.
    Rows and bytes are estimates of what a deletion frees inside the tables.
    """
    with lake_session.open_lake() as (settings, connection):
        found = read_cleanup_rooms(connection, settings, idle_days, limit, release)
    if format is not output.OutputFormat.TABLE:
        columns = (*CleanupRoom._fields, "list_media", "delete_room", "delete_room_body")
        output.write_rows(columns, ((*room, *_calls(room), _BODY) for room in found), format)
        return
    table = output.create_table("Room")
    for heading in ("Rows", "Frees about", "Events with media", "Members elsewhere", "Invited", "Left"):
        table.add_column(heading, justify="right")
    table.add_column("Last event")
    for room in found:
        counts = (room.media_events, room.joined_members, room.pending_local_users, room.unforgotten_local_users)
        table.add_row(
            room.room_id, f"{room.stored_rows:,}", format_bytes(room.estimated_bytes), *map(str, counts),
            output.format_time(room.last_event_at.replace(microsecond=0)) if room.last_event_at else "-",
        )  # fmt: skip
    output.create_console().print(table)
    for line in describe_calls(found):
        output.echo(line)


def read_cleanup_rooms(
    connection: DuckDBPyConnection, settings: Settings, idle_days: int, limit: int, number: int | None = None
) -> list[CleanupRoom]:
    """Return rooms of ``gold.room_cleanup``, the largest first.

    :param idle_days: only rooms whose last event is older.
    :raises LakeReadError: when the release has no such view.
    """
    release = duckdb_reader.get_release(connection, settings, number)
    if "gold.room_cleanup" not in release.views:
        raise LakeReadError(f"Release {release.number} has no gold.room_cleanup; use a newer release.")
    duckdb_reader.create_views(connection, settings, release, ["gold.room_cleanup"])
    return [CleanupRoom(*row) for row in connection.execute(build_query(idle_days, limit)).fetchall()]


def build_query(idle_days: int, limit: int) -> str:
    """Return the SQL that selects the fields of :class:`CleanupRoom`."""
    before = quote_literal((datetime.now(UTC) - timedelta(days=idle_days)).isoformat())
    return (
        f"select {', '.join(CleanupRoom._fields)} from gold.room_cleanup"  # noqa: S608 - quoted
        f" where last_event_at is null or last_event_at <= {before}::timestamptz"
        f" order by estimated_bytes desc nulls last, stored_rows desc, room_id limit {limit:d}"
    )


def build_calls(room_id: str) -> tuple[str, str] | None:
    """Return the calls of the admin API that list the media of a room, and that delete the room.

    None for an ID that is no room ID. Such a text could be a path of another call.
    """
    if not room_id.startswith("!"):
        return None
    name = quote(room_id, safe="")
    return f"GET {_ADMIN_API}/v1/room/{name}/media", f"DELETE {_ADMIN_API}/v2/rooms/{name}"


def _calls(room: CleanupRoom) -> tuple[str | None, str | None]:
    return build_calls(room.room_id) or (None, None)


def describe_calls(found: Sequence[CleanupRoom]) -> Iterator[str]:
    """Yield the lines with the calls for these rooms. A call for media comes before the deletion of its room."""
    if not found:
        yield "No room can be cleaned up: users of this server have joined every room."
        return
    yield "Calls of Synapse's admin API, which this command does not make:"
    with_media = False
    for room in found:
        list_media, delete_room = _calls(room)
        if list_media and room.media_events:
            with_media = True
            yield list_media
        yield f"{delete_room} {_BODY}" if delete_room else "(no call, because the ID is not a room ID)"
    if with_media:
        yield "To delete listed media of this server (other rooms may also use these media):"
        yield f"DELETE {_ADMIN_API}/v1/media/<server_name>/<media_id>"
