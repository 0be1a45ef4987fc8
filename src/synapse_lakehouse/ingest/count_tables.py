"""Count the rows and changed rows of all tables of a run, over several connections."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

import psycopg

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.snapshot_session import wait_with_keepalive
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot, import_snapshot

CountRows = Callable[[Connection], None]

PAGES_PER_CONNECTION: Final = 2_048
"""16 MiB of heap. A scan of so many pages takes longer than opening another connection."""

CANCEL_SECONDS: Final = 0.5


def count_tables(
    settings: Settings,
    connection: Connection,
    snapshot: PostgresSnapshot,
    tables: Sequence[tuple[int, CountRows]],
    readers: ThreadPoolExecutor,
) -> None:
    """Count each of ``tables`` once, over ``connection``, which exports ``snapshot``, and over further connections.

    If several tables are large, threads of ``readers`` open the further connections.

    :param tables: the size in pages and the counting function of each table, the largest first.
    :raises psycopg.Error: when a count over ``connection`` fails. No further count is started.
    :raises ReadError: when a count over another connection fails. No further count is started.
    """
    remaining = iter([count for _, count in tables])
    others: list[Connection] = []

    def count_over(connection: Connection) -> None:
        try:
            for count in remaining:
                count(connection)
        finally:
            deque(remaining, maxlen=0)

    def count_over_new_connection() -> None:
        with import_snapshot(settings, snapshot) as other:
            others.append(other)
            count_over(other)

    large_tables = sum(pages >= PAGES_PER_CONNECTION for pages, _ in tables)
    counting = [
        readers.submit(count_over_new_connection)
        for _ in range(min(large_tables, settings.lakehouse_source_connections) - 1)
    ]
    try:
        count_over(connection)
        for future in counting:
            wait_with_keepalive(future, connection)
    finally:
        # A cancellation between two statements has no effect, so it is repeated until all counts have ended.
        while wait(counting, timeout=CANCEL_SECONDS).not_done:
            for other in others:
                with suppress(psycopg.Error):
                    other.cancel()
