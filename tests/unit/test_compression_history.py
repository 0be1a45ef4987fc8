"""The history of compressions by run and room."""

from typing import Any

import duckdb
import pytest

from synapse_lakehouse.cli.compression import history

COLUMNS = (
    "finished_at timestamptz, run_id text, room_id text, outcome text, strategy text, rows_before bigint,"
    " rows_after bigint, bytes_before bigint, bytes_after bigint, groups_rewritten bigint, longest_chain bigint,"
    " seconds double, longest_lock_ms double, error text,"
    " groups_sampled bigint, chain_before double, chain_after double, read_ms_before double, read_ms_after double,"
    " disk_bytes_before bigint, disk_bytes_after bigint"
)


@pytest.fixture
def lake() -> duckdb.DuckDBPyConnection:
    """Return a lake with two runs. In run one, room !a was tried twice and room !b was skipped."""
    connection = duckdb.connect()
    connection.execute(f"set TimeZone = 'UTC'; create schema audit; create table audit.compression_runs ({COLUMNS})")
    connection.execute("""
        insert into audit.compression_runs by name (select * from (values
            ('2026-11-01 10:00:00+00'::timestamptz, 'one', '!a', 'stopped', null, null, null, null),
            ('2026-11-01 11:00:00+00', 'one', '!a', 'compressed', 100, 40, 9000, 4000),
            ('2026-11-01 11:01:00+00', 'one', '!b', 'skipped', null, null, null, null),
            ('2026-11-02 11:00:00+00', 'two', '!a', 'partial', 50, 45, 5000, 4500)
        ) as t(finished_at, run_id, room_id, outcome, rows_before, rows_after, bytes_before, bytes_after))
    """)
    return connection


def run_query(lake: duckdb.DuckDBPyConnection, query: str, condition: str = "true") -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = lake.execute(history._LATEST.format(condition=condition) + query).fetchall()
    return rows


def test_the_history_sums_runs_and_rooms(lake: duckdb.DuckDBPyConnection) -> None:
    assert [row[1:] for row in run_query(lake, history._RUNS)] == [(1, 60, 5000, None, None), (1, 5, 500, None, None)]
    ((room, runs, freed_rows, rows_after, *_, freed_by_run),) = run_query(lake, history._ROOMS)
    assert (room, runs, freed_rows, rows_after, freed_by_run) == ("!a", 2, 65, 45, [60, 5])
    assert len(run_query(lake, history._ROOMS_OF_RUNS)) == 3, "a room that was tried again has one row"
    assert run_query(lake, history._ROOMS, "room_id in ('!b')") == []


def test_the_first_and_last_measurements_are_shown(lake: duckdb.DuckDBPyConnection) -> None:
    lake.execute("update audit.compression_runs set chain_before = 9, chain_after = 4 where rows_before = 50")
    lake.execute("update audit.compression_runs set disk_bytes_before = 7, disk_bytes_after = 8 where rows_before = 50")
    ((*_, chain_before, chain_after, read_before, read_after, _, _),) = run_query(lake, history._ROOMS)
    assert (chain_before, chain_after, read_before, read_after) == (9, 4, None, None)
    assert [row[-2:] for row in run_query(lake, history._RUNS)] == [(None, None), (7, 8)]
    assert history._before_after(chain_before, chain_after) == "9.0 → 4.0"
    assert history._before_after(read_before, read_after) == "-"
