"""``lakehouse compress history``: the space freed by compressions, by run and by room."""

from collections.abc import Sequence
from typing import Any, Final

from rich.bar import Bar
from rich.text import Text

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.cli.streams.positions_history import draw_bars
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_RUNS_TABLE
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal

_MB: Final = 1_000_000
_WIDTH: Final = 30

_LATEST: Final = f"""
with latest as (
    from {COMPRESSION_RUNS_TABLE} where {{condition}}
    qualify row_number() over (partition by run_id, room_id order by finished_at desc) = 1
),
changed as (
    from latest where outcome in ('compressed', 'partial', 'faulty', 'undone') and rows_after is not null
)
"""
_ROOMS_OF_RUNS: Final = """
select finished_at, run_id, room_id, outcome, strategy, rows_before, rows_after, rows_before - rows_after as rows_freed,
       bytes_before - bytes_after as bytes_freed, groups_rewritten, longest_chain, groups_sampled, chain_before,
       chain_after, read_ms_before, read_ms_after, disk_bytes_before, disk_bytes_after, seconds, longest_lock_ms, error
from latest order by finished_at, room_id
"""
_RUNS: Final = """
select max(finished_at), count(*), sum(rows_before - rows_after), sum(bytes_before - bytes_after),
       min_by(disk_bytes_before, finished_at), max_by(disk_bytes_after, finished_at)
from changed group by run_id order by 1
"""
_ROOMS: Final = """
select room_id, count(*), sum(rows_before - rows_after) as freed, max_by(rows_after, finished_at),
       sum(bytes_before - bytes_after),
       min_by(chain_before, finished_at), max_by(chain_after, finished_at),
       min_by(read_ms_before, finished_at), max_by(read_ms_after, finished_at),
       max(longest_lock_ms), list(greatest(rows_before - rows_after, 0) order by finished_at)
from changed group by room_id order by freed desc, room_id
"""
_NOTHING: Final = (
    "This lake contains no compressions, neither by `lakehouse compress apply` nor by the DAG "
    "state_compression. docs/how-to/compress-room-state.md describes the first steps."
)


def show_history(rooms: Sequence[str], format: output.OutputFormat) -> None:
    """Write a chart of runs and a table of rooms; as CSV or JSON, the rooms of all runs."""
    with lake_session.open_lake() as (settings, connection):
        if COMPRESSION_RUNS_TABLE not in list_catalog_entries(settings):
            raise LakeReadError(_NOTHING)
        duckdb_reader.create_views(connection, settings, None, [COMPRESSION_RUNS_TABLE])
        condition = f"room_id in ({', '.join(map(quote_literal, rooms))})" if rooms else "true"
        latest = _LATEST.format(condition=condition)
        if format is not output.OutputFormat.TABLE:
            result = connection.execute(latest + _ROOMS_OF_RUNS)
            output.write_rows([column[0] for column in result.description or ()], result.fetchall(), format)
            return
        by_run, by_room = (connection.execute(latest + query).fetchall() for query in (_RUNS, _ROOMS))
    if not by_run:
        raise LakeReadError(_NOTHING)
    _draw_runs(by_run)
    _draw_rooms(by_room)


def _draw_runs(runs: Sequence[tuple[Any, ...]]) -> None:
    table = output.create_table("Run")
    for heading in ("Rooms", "Rows freed", "MB", "All state on disk, MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    most = max(1, *(run[2] for run in runs))
    for at, rooms, freed, freed_bytes, disk_before, disk_after in runs:
        table.add_row(
            output.format_time(at.replace(microsecond=0)), f"{rooms:,}", f"{freed:,}", _mb(freed_bytes),
            f"{_mb(disk_before)} → {_mb(disk_after)}", Bar(most, 0, max(freed, 0), width=_WIDTH),
        )  # fmt: skip
    console = output.create_console()
    console.print(table)
    freed, freed_bytes = sum(run[2] for run in runs), sum(run[3] for run in runs)
    console.print(
        Text(
            f"{freed:,} rows and about {_mb(freed_bytes)} MB were freed in total. After VACUUM, PostgreSQL reuses the "
            "space for new rows. VACUUM FULL or pg_repack returns the space to the disk, as the next run will show."
        )
    )
    console.print()


def _draw_rooms(rooms: Sequence[tuple[Any, ...]]) -> None:
    table = output.create_table()
    table.add_column("Room", overflow="fold")
    for heading in ("Runs", "Rows freed", "left", "MB", "Chain", "Read, ms", "Lock, ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Run by run", no_wrap=True)
    for room_id, runs, freed, skipped, freed_bytes, chain, chain_now, read, read_now, lock, each in rooms:
        table.add_row(
            output.format_cell(room_id), f"{runs:,}", f"{freed:,}", f"{skipped:,}", _mb(freed_bytes),
            _before_after(chain, chain_now),
            _before_after(read, read_now), "-" if lock is None else f"{lock:,.0f}", draw_bars(each),
        )  # fmt: skip
    output.create_console().print(table)


def _before_after(before: float | None, after: float | None) -> str:
    """Format the value before the first measured run, and the value after the last measured run."""
    return "-" if before is None or after is None else f"{before:,.1f} → {after:,.1f}"


def _mb(size: int | None) -> str:
    return "-" if size is None else f"{size / _MB:,.1f}"
