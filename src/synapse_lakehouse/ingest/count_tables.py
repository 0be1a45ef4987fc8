"""Count what changed in all tables of a run, over as many connections as it may have."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import psycopg

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.snapshot_session import wait_with_keepalive
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot, import_snapshot

CountRows = Callable[[Connection], None]

PAGES_PER_CONNECTION: Final = 2_048
"""Pages of a table, 16 MiB, which take longer to look through than another connection takes to open."""


def count_tables(
    settings: Settings,
    connection: Connection,
    snapshot: PostgresSnapshot,
    tables: Sequence[tuple[int, CountRows]],
    readers: ThreadPoolExecutor,
) -> None:
    """Count each of ``tables`` once: over ``connection``, which keeps ``snapshot``, and beside it over others, which
    ``readers`` open where large tables wait.

    :param tables: pages of each, and what counts its rows; the largest should come first.
    :raises psycopg.Error: when one cannot be counted; no other is begun then.
    """
    left = iter([count for _, count in tables])
    others: list[Connection] = []

    def work(over: Connection) -> None:
        try:
            for count in left:
                count(over)
        finally:
            _exhaust(left)

    def work_beside() -> None:
        with import_snapshot(settings, snapshot) as other:
            others.append(other)
            work(other)

    many = sum(pages >= PAGES_PER_CONNECTION for pages, _ in tables)
    beside = [readers.submit(work_beside) for _ in range(min(many, settings.lakehouse_source_connections) - 1)]
    try:
        work(connection)
        for one in beside:
            wait_with_keepalive(one, connection)
    finally:
        for other in others:
            with suppress(psycopg.Error):
                other.cancel()


def _exhaust(left: Iterator[CountRows]) -> None:
    for _ in left:
        pass
