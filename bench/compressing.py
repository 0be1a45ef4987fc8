"""Plan the compression of a database's rooms, verified, as one process that is measured.

Prints the rows before and after, and the CPU seconds of reading, planning and verifying. What a process takes once, to
load what Numba compiled, is not among them.
"""

import sys
import time

import adbc_driver_postgresql.dbapi as postgresql
import numpy as np
import pyarrow as pa

from bench.state_rooms import SMALL, Tables, room
from synapse_lakehouse.compression import best, tables
from synapse_lakehouse.compression.chunks import compress_chunks
from synapse_lakehouse.compression.level import parse_levels

QUERIES = (
    "SELECT id, room_id FROM state_groups",
    "SELECT state_group, prev_state_group FROM state_group_edges",
    "SELECT state_group, type, state_key, event_id FROM state_groups_state",
)


def main(strategy: str, dsn: str) -> None:
    """Plan and print."""
    plan(strategy, room(SMALL, 1))
    start = time.process_time()
    before, after = plan(strategy, fetched(dsn))
    print(before, after, time.process_time() - start)


def plan(strategy: str, contents: Tables) -> tuple[int, int]:
    """Rows before and after."""
    stored, _ = tables.encoded(*contents)
    before = stored.groups()
    if strategy == "best":
        after = best.compress(before, np.ones(len(before), bool), 100)
    else:
        for _ in compress_chunks(stored, parse_levels("100,50,25"), len(before), {}):
            pass
        after = stored.groups()
    return len(before.keys), len(after.keys)


def fetched(dsn: str) -> Tables:
    """The three tables of a database."""
    with postgresql.connect(dsn) as connection, connection.cursor() as cursor:
        groups, edges, rows = (_fetched(cursor, query) for query in QUERIES)
    return groups, edges, rows


def _fetched(cursor: postgresql.Cursor, query: str) -> pa.Table:
    cursor.execute(query)
    return cursor.fetch_arrow_table()


if __name__ == "__main__":
    main(*sys.argv[1:])
