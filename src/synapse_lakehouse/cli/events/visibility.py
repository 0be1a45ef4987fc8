"""Who may see which event: ``lakehouse who-can-see`` and ``lakehouse visible``."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.events import room_membership
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.printable_text import to_printable
from synapse_lakehouse.room_state import visibility_rules

_VIEW: Final = "gold.event_visibility"
_ANYBODY: Final = "anybody else"

AsOfOption = Annotated[
    datetime | None,
    typer.Option("--as-of", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC time at which expiry is judged."),
]


def who_can_see(
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="Id of an event, $…")],
    user: Annotated[str | None, typer.Option("--user", help="Only this user; any user of this server.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say which questions led to each answer.")] = False,
    as_of: AsOfOption = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
) -> None:
    """Say which users of this server may see an event, and what decided: as a member, and to one who only peeks in."""
    with lake_session.open_lake() as (settings, connection):
        at = duckdb_reader.get_release(connection, settings, release)
        _bind(connection, settings, at, user, as_of)
        require_event(connection, settings, at, event_id)
        rows = connection.execute(
            f"""
            select
                coalesce(user_id, {quote_literal(_ANYBODY)}), membership, outcome, rule,
                max(outcome) filter (peeking) over one, max(rule) filter (peeking) over one
            from {_VIEW}
            where event_id = {quote_literal(event_id)} {_only(user)}
            window one as (partition by user_id)
            qualify not peeking
            order by user_id nulls last
            """  # noqa: S608 - quoted
        ).fetchall()
    columns = ["user", "membership", "outcome", "rule", "peeking_outcome", "peeking_rule"]
    if not explain:
        output.write_rows(columns, rows, format)
        return
    told = [(user, rule, line) for user, _, _, rule, _, _ in rows for line in visibility_rules.explain_rule(rule)]
    if format is not output.OutputFormat.TABLE:
        output.write_rows(["user", "rule", "step"], told, format)
        return
    for user_id, membership, outcome, rule, *_ in rows:
        output.create_console().print(
            to_printable(f"{user_id} ({membership or 'membership not known'}): {outcome}, by the rule {rule}")
        )
        for number, line in enumerate(visibility_rules.explain_rule(rule), 1):
            output.create_console().print(f"  {number:2}. {line}")


def visible(
    user: Annotated[str, typer.Argument(help="A user of this server, @…")],
    room: Annotated[str | None, typer.Option("--room", help="List the events of this room.")] = None,
    peeking: Annotated[
        bool | None,
        typer.Option(
            "--peeking/--as-member",
            help="As somebody who looks in without being a member, or as a member; by default as a member where the"
            " user is joined, or left and has not forgotten the room, and else as peeking.",
        ),
    ] = None,
    as_of: AsOfOption = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
) -> None:
    """Say what a user may see: of each room where the user ever was a member, how much; of one room, which events."""
    with lake_session.open_lake() as (settings, connection):
        at = duckdb_reader.get_release(connection, settings, release)
        _bind(connection, settings, at, user, as_of)
        duckdb_reader.create_views(connection, settings, at, ["gold.events", *room_membership.MEMBERSHIP_TABLES])
        if (
            room
            and not connection.execute(
                f"select 1 from gold.events where room_id = {quote_literal(room)} limit 1"  # noqa: S608 - quoted
            ).fetchone()
        ):
            raise LakeReadError(f"There is no event of the room {to_printable(room)} in release {at.number}.")
        as_peeking = "coalesce(not as_member, true)" if peeking is None else peeking
        known = f"""
            with {room_membership.membership_ctes(user)},
            seen as (
                select view.room_id, view.event_id, outcome, rule, view.membership
                from {_VIEW} as view
                join gold.readers using (room_id)
                left join standing on view.room_id = standing.room_id
                where view.user_id = {quote_literal(user)} and peeking = {as_peeking}
                    and {f"view.room_id = {quote_literal(room)}" if room else "not never_a_member"}
            )
            """  # noqa: S608 - quoted
        if room:
            columns = ["stream_ordering", "received_at", "event_id", "type", "sender", "outcome", "rule", "membership"]
            found = connection.execute(
                f"{known} select stream_ordering, received_at, event_id, type, sender, outcome, rule, seen.membership"  # noqa: S608
                " from seen join gold.events as events using (event_id) order by topological_ordering, stream_ordering"
            )
        else:
            columns = ["room_id", "shown", "without_content", "hidden"]
            found = connection.execute(
                f"{known} select room_id, count(*) filter (outcome = 'full'), count(*) filter (outcome = 'redacted'),"  # noqa: S608
                " count(*) filter (outcome = 'hidden') from seen group by room_id order by room_id"
            )
        output.write_rows(columns, found.fetchall(), format)


def require_event(connection: DuckDBPyConnection, settings: Settings, release: Release, event_id: str) -> None:
    """Make sure that ``release`` knows the event.

    :raises LakeReadError: when it does not.
    """
    duckdb_reader.create_views(connection, settings, release, ["bronze.events"])
    known = f"select 1 from bronze.events where event_id = {quote_literal(event_id)}"  # noqa: S608 - quoted
    if not connection.execute(known).fetchone():
        raise LakeReadError(
            f"Release {release.number} has no event {to_printable(event_id)}. It may have been purged, or be younger "
            "than the release (`lakehouse releases` lists them). In a shell an id goes in single quotes: '$…'."
        )


def as_of_milliseconds(as_of: datetime) -> int:
    """Milliseconds since the epoch of what ``--as-of`` was given, a time in UTC without saying so."""
    return int(as_of.replace(tzinfo=UTC).timestamp() * 1000)


def set_retention_time(connection: DuckDBPyConnection, as_of: int) -> None:
    """Let expiry be judged at ``as_of`` (ms since the epoch), whenever the lake was made."""
    connection.execute(f"create or replace view silver.as_of as select 'retention' as judged, {int(as_of)} as as_of")


def _only(user: str | None) -> str:
    return f"and user_id = {quote_literal(user)}" if user else ""


def _bind(
    connection: DuckDBPyConnection, settings: Settings, release: Release, user: str | None, as_of: datetime | None
) -> None:
    """Make the view readable, with answers for ``user`` also where there never was a membership.

    :raises LakeReadError: when the release has no such view, or ``user`` is not of this server.
    """
    if _VIEW not in release.views:
        raise LakeReadError(f"Release {release.number} does not know yet who may see what; a later one does.")
    if user and user.partition(":")[2] != release.server_name:
        raise LakeReadError(
            f"{to_printable(user)} is not a user of {release.server_name}: other servers decide what their "
            "users may see."
        )
    duckdb_reader.create_views(connection, settings, release, [_VIEW])
    if as_of:
        set_retention_time(connection, as_of_milliseconds(as_of))
    if user:
        _answer_for(connection, settings, release, user)


def _answer_for(connection: DuckDBPyConnection, settings: Settings, release: Release, user: str) -> None:
    """Let ``user`` be read of in every room: where no membership is known, as somebody who never had one."""
    stored = dict(duckdb_reader.iterate_view_definitions(connection, settings, release, ["gold.visibility_intervals"]))
    connection.execute(f"create view gold.stored_intervals as {stored['gold.visibility_intervals']}")
    asked = quote_literal(user)
    connection.execute(
        f"""
        create or replace view gold.readers as
        select room_id, not bool_or(coalesce(user_id = {asked}, false)) as never_a_member
        from gold.stored_intervals group by room_id
        """  # noqa: S608 - quoted
    )
    connection.execute(
        f"""
        create or replace view gold.visibility_intervals as
        from gold.stored_intervals
        union all by name
        select * replace ({asked} as user_id)
        from gold.stored_intervals join gold.readers using (room_id) where user_id is null and never_a_member
        """  # noqa: S608 - quoted
    )
