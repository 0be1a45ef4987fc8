"""``lakehouse state-at``: the state of a room at an event."""

from typing import Annotated

import typer
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.events.visibility import require_event
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.printable_text import to_printable


def state_at(
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="Event ID, $…")],
    before: Annotated[
        bool,
        typer.Option(
            "--before",
            help="Show the state before the event. Synapse sends this state to other servers. Default: the state after "
            "the event.",
        ),
    ] = False,
    type: Annotated[str | None, typer.Option("--type", help="Only this event type, such as m.room.member.")] = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
) -> None:
    """Show the state of a room after an event, or before it: the state event of each type and state key."""
    with lake_session.open_lake() as (settings, connection):
        selected = duckdb_reader.get_release(connection, settings, release)
        require_event(connection, settings, selected, event_id)
        duckdb_reader.create_views(connection, settings, selected, ["gold.state_at_event", "gold.events"])
        column = "before_event_id" if before else "after_event_id"
        rows = connection.execute(
            f"""
            select state.type, state.state_key, {column}, sender, membership, before_is_known
            from gold.state_at_event as state
            left join gold.events as events on {column} = events.event_id
            where state.event_id = {quote_literal(event_id)}
                {f"and state.type = {quote_literal(type)}" if type else ""}
                and ({column} is not null or {str(before).lower()} and not before_is_known)
            order by state.type, state.state_key
            """  # noqa: S608 - quoted
        ).fetchall()
        if not rows:
            _require_state(connection, settings, selected, event_id)
    cells = [(*row[:2], row[2] or "unknown", *row[3:5]) for row in rows]
    output.write_rows(["type", "state_key", "event_id", "sender", "membership"], cells, format)


def _require_state(connection: DuckDBPyConnection, settings: Settings, release: Release, event_id: str) -> None:
    """Require that the state at the event is known. Without rows, the state may be empty or unknown.

    :raises LakeReadError: if the state at the event is unknown.
    """
    duckdb_reader.create_views(connection, settings, release, ["silver.event_visibility_inputs"])
    query = (
        "select 1 from silver.event_visibility_inputs"  # noqa: S608 - quoted
        f" where event_id = {quote_literal(event_id)} and position >= 0 and state_is_known"
    )
    if not connection.execute(query).fetchone():
        raise LakeReadError(
            f"The state at {to_printable(event_id)} is unknown: the event is an outlier (outside its room's event "
            "graph), or its state group is missing or damaged (see silver.state_faults)."
        )
