"""Ranges of indexes are read within a time limit, and a large index does not use up the time of the others."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.check_indexes import scan_source
from synapse_lakehouse.ingest.index_progress import IndexProgress
from synapse_lakehouse.local.postgres.sample import read_server_name
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.indexes.btree_index import read_indexes
from synapse_lakehouse.postgres.indexes.heap_comparison import compare_with_heap

TABLE: Final = "event_to_state_groups"
BY_GROUP: Final = "event_to_state_groups_sg_index"
ENTRIES: Final = 20_000
"""Number of entries of one key: a search for the key of each row would take many seconds."""
SLACK_SECONDS: Final = 3
OTHER_PLAN: Final = "PostgreSQL reads another index, or none, for its keys"


@contextmanager
def open_indexes(dsn: str) -> Iterator[dict[str, IndexProgress]]:
    """Yield the table's indexes by name, in an open transaction."""
    settings = Settings(_env_file=None, synapse_dsn=dsn, synapse_server_name=read_server_name())
    table = catalogue.load_catalogue().table(TABLE)
    with connect(settings) as connection:
        yield {
            index.name: IndexProgress(connection, index, table, count=100)
            for index in read_indexes(connection, table).checkable
        }


@pytest.fixture
def row_count(source_copy: str) -> int:
    """Add many rows of one state group to the source, and return the number of all rows of the table."""
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(
            "insert into event_to_state_groups select 'e' || number, (select percentile_disc(0.5) within group"
            f" (order by state_group) from event_to_state_groups) from generate_series(1, {ENTRIES}) as number".encode()
        )
        owner.execute("analyze event_to_state_groups")
        (rows,) = owner.execute("select count(*) from event_to_state_groups").fetchone() or (0,)
    return int(rows)


def test_many_entries_of_one_key_do_not_stop_the_rotation(reader: str, row_count: int) -> None:
    with open_indexes(reader) as indexes:
        unit, other = indexes.pop(BY_GROUP), indexes.popitem()[1]
        checked_rows = 0
        for _ in range(10):
            scanned = scan_source([unit, other], 10)
            checked_rows += sum(part.digest.rows for part in unit.ranges)
            assert not any(part.digest.not_own or part.error for part in unit.ranges)
            unit.first, unit.ranges = unit.ranges[-1].keys.end, []
            if unit.first is None:
                break
        assert checked_rows == row_count > ENTRIES
        assert other in scanned


def test_a_range_is_cancelled_at_the_time_limit(reader: str, row_count: int) -> None:
    with open_indexes(reader) as indexes:
        unit = indexes.pop(BY_GROUP)
        unit.count = row_count
        started_at = time.monotonic()
        assert scan_source([unit, *indexes.values()], 1) == []
        assert time.monotonic() - started_at < 1 + SLACK_SECONDS
        assert not unit.ranges
        # The next run reads fewer entries at once.
        assert not unit.not_checked


def test_one_of_two_equal_indexes_is_not_checked(reader: str, source_copy: str) -> None:
    """PostgreSQL reads the same index for the keys of both, and ``explain`` shows it."""
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("create index duplicate on event_to_state_groups (state_group)")
    with open_indexes(reader) as indexes:
        pair = [indexes[BY_GROUP], indexes["duplicate"]]
        (scanned_unit,) = scan_source(pair, 60)
        (skipped_unit,) = (unit for unit in pair if unit is not scanned_unit)
        assert (scanned_unit.not_checked, skipped_unit.not_checked) == ("", OTHER_PLAN)
        connection = scanned_unit.connection
        connection.rollback()
        reasons = {unit.index.name: compare_with_heap(connection, unit.index).not_checked for unit in pair}
        assert reasons == {scanned_unit.index.name: "", skipped_unit.index.name: OTHER_PLAN}
