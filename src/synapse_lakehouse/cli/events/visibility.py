"""Who may see which event: ``lakehouse who-can-see`` and ``lakehouse visible``."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.events import member_rooms_sql
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.printable_text import to_printable
from synapse_lakehouse.room_state import visibility_explanations

_VIEW: Final = "gold.event_visibility"
_ANY_OTHER_USER: Final = "any other user"

AsOfOption = Annotated[
    datetime | None,
    typer.Option(
        "--as-of", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC time at which retention is evaluated."
    ),
]


def who_can_see(
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="Event ID, $…")],
    user: Annotated[str | None, typer.Option("--user", help="Only this user of this server.")] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the steps that led to each outcome, instead of the table of outcomes."),
    ] = False,
    as_of: AsOfOption = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
) -> None:
    """Show which users of this server may see an event, as members and as peeking users, and by which rules."""
    with lake_session.open_lake() as (settings, connection):
        selected = duckdb_reader.get_release(connection, settings, release)
        _bind_view(connection, settings, selected, user, as_of)
        require_event(connection, settings, selected, event_id)
        rows = connection.execute(
            f"""
            select
                coalesce(user_id, {quote_literal(_ANY_OTHER_USER)}), membership, outcome, rule,
                max(outcome) filter (peeking) over each_user, max(rule) filter (peeking) over each_user
            from {_VIEW}
            where event_id = {quote_literal(event_id)} {f"and user_id = {quote_literal(user)}" if user else ""}
            window each_user as (partition by user_id)
            qualify not peeking
            order by user_id nulls last
            """  # noqa: S608 - quoted
        ).fetchall()
    columns = ["user", "membership", "outcome", "rule", "peeking_outcome", "peeking_rule"]
    if not explain:
        output.write_rows(columns, rows, format)
        return
    steps = [
        (user, rule, line) for user, _, _, rule, _, _ in rows for line in visibility_explanations.explain_rule(rule)
    ]
    if format is not output.OutputFormat.TABLE:
        output.write_rows(["user", "rule", "step"], steps, format)
        return
    for user_id, membership, outcome, rule, *_ in rows:
        output.create_console().print(
            to_printable(f"{user_id} ({membership or 'unknown membership'}): {outcome}, by the rule {rule}")
        )
        for number, line in enumerate(visibility_explanations.explain_rule(rule), 1):
            output.create_console().print(f"  {number:2}. {line}")


def visible(
    user: Annotated[str, typer.Argument(help="A user of this server, @…")],
    room: Annotated[str | None, typer.Option("--room", help="List the events of this room.")] = None,
    peeking: Annotated[
        bool | None,
        typer.Option(
            "--peeking/--as-member",
            help="Apply the rules for peeking users, or the rules for members. By default, a user that is joined, or"
            " that left the room without forgetting it, gets the rules for members. All other users, for example after"
            " a ban, get the rules for peeking users.",
        ),
    ] = None,
    as_of: AsOfOption = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
) -> None:
    """Show how many events a user may see in each room where the user was ever a member.

    With --room, list the events of this room instead, each with the outcome for the user.
    """
    with lake_session.open_lake() as (settings, connection):
        selected = duckdb_reader.get_release(connection, settings, release)
        _bind_view(connection, settings, selected, user, as_of)
        duckdb_reader.create_views(connection, settings, selected, ["gold.events", *member_rooms_sql.MEMBERSHIP_TABLES])
        if room:
            _require_room(connection, selected, room)
        columns, query = _visible_events_query(user, room, peeking=peeking)
        output.write_rows(columns, connection.execute(query).fetchall(), format)


def _require_room(connection: DuckDBPyConnection, release: Release, room: str) -> None:
    query = f"select 1 from gold.events where room_id = {quote_literal(room)} limit 1"  # noqa: S608 - quoted
    if not connection.execute(query).fetchone():
        raise LakeReadError(f"Release {release.number} contains no event of the room {to_printable(room)}.")


def _visible_events_query(user: str, room: str | None, *, peeking: bool | None) -> tuple[list[str], str]:
    as_peeking = "coalesce(not as_member, true)" if peeking is None else peeking
    events = f"""
        with {member_rooms_sql.membership_ctes(user)},
        seen as (
            select view.room_id, view.event_id, outcome, rule, view.membership
            from {_VIEW} as view
            join gold.readers using (room_id)
            left join own_rooms on view.room_id = own_rooms.room_id
            where view.user_id = {quote_literal(user)} and peeking = {as_peeking}
                and {f"view.room_id = {quote_literal(room)}" if room else "not never_a_member"}
        )
        """  # noqa: S608 - quoted
    if room:
        columns = ["stream_ordering", "received_at", "event_id", "type", "sender", "outcome", "rule", "membership"]
        return columns, (
            f"{events} select stream_ordering, received_at, event_id, type, sender, outcome, rule, seen.membership"  # noqa: S608
            " from seen join gold.events as events using (event_id) order by topological_ordering, stream_ordering"
        )
    return ["room_id", "shown", "without_content", "hidden"], (
        f"{events} select room_id, count(*) filter (outcome = 'full'), count(*) filter (outcome = 'redacted'),"  # noqa: S608
        " count(*) filter (outcome = 'hidden') from seen group by room_id order by room_id"
    )


def require_event(connection: DuckDBPyConnection, settings: Settings, release: Release, event_id: str) -> None:
    """Require that ``release`` contains the event.

    :raises LakeReadError: if it does not.
    """
    duckdb_reader.create_views(connection, settings, release, ["bronze.events"])
    query = f"select 1 from bronze.events where event_id = {quote_literal(event_id)}"  # noqa: S608 - quoted
    if not connection.execute(query).fetchone():
        raise LakeReadError(
            f"Release {release.number} has no event {to_printable(event_id)}. It may have been purged, or be newer "
            "than the release (see `lakehouse releases`). In a shell, put an event ID in single quotes: '$…'."
        )


def as_of_milliseconds(as_of: datetime) -> int:
    """Convert the value of ``--as-of``, a UTC time without time zone, to milliseconds since the epoch."""
    return int(as_of.replace(tzinfo=UTC).timestamp() * 1000)


def set_retention_time(connection: DuckDBPyConnection, as_of: int) -> None:
    """Evaluate retention at ``as_of`` (milliseconds since the epoch) instead of the time of the release."""
    connection.execute(
        f"create or replace view silver.retention_time as select 'retention' as judged, {int(as_of)} as as_of"
    )


def _bind_view(
    connection: DuckDBPyConnection, settings: Settings, release: Release, user: str | None, as_of: datetime | None
) -> None:
    """Create the view; with ``user``, also for rooms where the user was never a member.

    :raises LakeReadError: if the release has no such view, or ``user`` belongs to another server.
    """
    if _VIEW not in release.views:
        raise LakeReadError(f"Release {release.number} has no visibility tables; use a newer release.")
    if user and user.partition(":")[2] != release.server_name:
        raise LakeReadError(
            f"{to_printable(user)} is not a user of {release.server_name}. Other servers decide what their "
            "users may see."
        )
    duckdb_reader.create_views(connection, settings, release, [_VIEW])
    if as_of:
        set_retention_time(connection, as_of_milliseconds(as_of))
    if user:
        _add_user_to_all_rooms(connection, settings, release, user)


def _add_user_to_all_rooms(connection: DuckDBPyConnection, settings: Settings, release: Release, user: str) -> None:
    """Add ``user`` to each room in which ``user`` has no known membership, as a user that was never a member."""
    definitions = dict(
        duckdb_reader.iterate_view_definitions(connection, settings, release, ["gold.visibility_intervals"])
    )
    connection.execute(f"create view gold.stored_intervals as {definitions['gold.visibility_intervals']}")
    quoted_user = quote_literal(user)
    connection.execute(
        f"""
        create or replace view gold.readers as
        select room_id, not bool_or(coalesce(user_id = {quoted_user}, false)) as never_a_member
        from gold.stored_intervals group by room_id
        """  # noqa: S608 - quoted
    )
    connection.execute(
        f"""
        create or replace view gold.visibility_intervals as
        from gold.stored_intervals
        union all by name
        select * replace ({quoted_user} as user_id)
        from gold.stored_intervals join gold.readers using (room_id) where user_id is null and never_a_member
        """  # noqa: S608 - quoted
    )
