"""Ranges of suspect indexes are read within a time limit, and no index takes the time of all others for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.check_indexes import scan_source
from synapse_lakehouse.ingest.index_progress import IndexProgress
from synapse_lakehouse.local.postgres.sample import read_server_name
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.indexes.btree_index import read_indexes

TABLE: Final = "event_to_state_groups"
BY_GROUP: Final = "event_to_state_groups_sg_index"
EQUAL: Final = 20_000
"""Number of entries of one key: a search for the key of each row would take minutes."""


@contextmanager
def opened_indexes(dsn: str) -> Iterator[dict[str, IndexProgress]]:
    """Both indexes of the table in a transaction."""
    settings = Settings(_env_file=None, synapse_dsn=dsn, synapse_server_name=read_server_name())
    table = catalogue.load_catalogue().table(TABLE)
    with connect(settings) as connection:
        yield {
            index.name: IndexProgress(connection, index, table, count=100)
            for index in read_indexes(connection, table).checkable
        }


def test_many_entries_of_one_key_do_not_stop_the_rotation(reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(
            "insert into event_to_state_groups select 'e' || number, (select percentile_disc(0.5) within group"
            f" (order by state_group) from event_to_state_groups) from generate_series(1, {EQUAL}) as number".encode()
        )
        owner.execute("analyze event_to_state_groups")
        (total,) = owner.execute("select count(*) from event_to_state_groups").fetchone() or (0,)
    with opened_indexes(reader) as indexes:
        unit, other = indexes.pop(BY_GROUP), indexes.popitem()[1]
        checked = 0
        for _ in range(10):
            scanned = scan_source([unit, other], 10)
            checked += sum(part.digest.rows for part in unit.ranges)
            assert not any(part.digest.not_own or part.error for part in unit.ranges)
            unit.first, unit.ranges = unit.ranges[-1].keys.end, []
            if unit.first is None:
                break
        assert checked == total > EQUAL
        assert other in scanned
