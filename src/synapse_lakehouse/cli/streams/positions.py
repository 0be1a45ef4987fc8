"""``lakehouse positions``: the safe bound of each stream at a release."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated

import typer
from duckdb import DuckDBPyConnection
from rich.table import Table
from rich.text import Text

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.cli.streams import gaps
from synapse_lakehouse.cli.streams.positions_history import show_history as show_history
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.printable_text import to_printable
from synapse_lakehouse.replication import tap_liveness


@dataclass(frozen=True)
class StreamPosition:
    """The position of a stream at a release.

    ``bound``: the safe bound (None: ``rule`` gives the reason). ``previous``: the bound of the previous release.
    ``lag``: number of IDs beyond the bound that ``sequence`` has allocated. These IDs were in flight, or are never
    used.
    """

    stream: str
    bound: int | None
    previous: int | None
    rule: str
    lag: int | None
    sequence: str
    sequence_value: int | None
    writers: Mapping[str, int]
    missing_writers: list[str]


def positions(
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show the observations of the DAG stream_watch instead.")
    ] = False,
    show_gaps: Annotated[
        bool, typer.Option("--gaps", help="Show missing, late, duplicate and changed IDs instead, with the reason.")
    ] = False,
) -> None:
    """Show the safe bound of each stream, the rule that determined it, and the positions of its writers.

    The columns Sequence and Lag contain the last ID that the stream's sequence allocated, and the number of allocated
    IDs beyond the bound.
    """
    if history:
        show_history(format)
        return
    with lake_session.open_lake() as (settings, connection):
        selected = duckdb_reader.get_release(connection, settings, release)
        if show_gaps:
            gaps.write_gaps(gaps.read_gaps(connection, settings, selected, is_latest=release is None), format)
            return
        stream_positions = read_positions(connection, settings, selected)
        tap_committed_at = tap_liveness.read_last_commit_time_by_duckdb(connection, settings)
    if format is output.OutputFormat.TABLE:
        published = output.format_time(selected.published_at.replace(microsecond=0))
        output.create_console().print(f"Stream positions at release {selected.number}, published at {published}")
        output.create_console().print(render_positions(stream_positions))
        if tap_committed_at:
            output.create_console().print(
                f"The replication tap last listened at {output.format_time(tap_committed_at.replace(microsecond=0))}"
            )
        return
    rows = (tuple(asdict(position).values()) for position in stream_positions)
    output.write_rows([field.name for field in fields(StreamPosition)], rows, format)


def read_positions(connection: DuckDBPyConnection, settings: Settings, release: Release) -> list[StreamPosition]:
    """Return positions that the run of ``release`` measured, sorted by stream."""
    duckdb_reader.create_views(connection, settings, None, ["audit.stream_positions"])
    duckdb_reader.set_release_variables(connection, release)
    rows = connection.execute(
        "with last as (from audit.stream_positions"
        " where run_id = getvariable('run') and measured_at <= getvariable('audited_until')"
        " qualify row_number() over (partition by stream order by measured_at desc) = 1),"
        " used as (select *, sequence_last_value - if(sequence_is_called, 0, 1) as allocated from last)"
        " select stream, safe_bound, previous_bound, rule,"
        " case when safe_bound is not null then greatest(allocated - abs(safe_bound), 0) end, sequence, allocated,"
        " coalesce(writers, map {}), coalesce(missing_writers, []) from used order by stream"
    ).fetchall()
    return [StreamPosition(*row) for row in rows]


def render_positions(stream_positions: list[StreamPosition]) -> Table:
    """Return the positions as a table."""
    table = output.create_table()
    table.add_column("Stream", no_wrap=True)
    for heading in ("Bound", "Previous", "Lag"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Rule")
    table.add_column("Sequence", overflow="fold")
    table.add_column("Writers", overflow="fold")
    for position in stream_positions:
        writers = [output.format_cell(f"{name} {token}") for name, token in sorted(position.writers.items())]
        writers += [Text(to_printable(f"{name} missing"), style="yellow") for name in position.missing_writers]
        table.add_row(
            position.stream, *map(_format_number, (position.bound, position.previous, position.lag)),
            position.rule.replace("_", " "), f"{position.sequence} {_format_number(position.sequence_value)}",
            Text(", ").join(writers),
        )  # fmt: skip
    return table


def _format_number(value: int | None) -> str:
    return "-" if value is None else str(value)
