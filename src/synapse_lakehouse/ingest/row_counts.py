"""Count what changed in all tables of a run, over as many connections as it may have."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import psycopg

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.snapshot_session import await_idle
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.snapshot.snapshot import Snapshot, imported

Count = Callable[[Connection], None]

WORTH_A_CONNECTION: Final = 2_048
"""Pages of a table, 16 MiB, which take longer to look through than another connection takes to open."""


def count_all(
    settings: Settings,
    connection: Connection,
    snapshot: Snapshot,
    tables: Sequence[tuple[int, Count]],
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
        with imported(settings, snapshot) as other:
            others.append(other)
            work(other)

    many = sum(pages >= WORTH_A_CONNECTION for pages, _ in tables)
    beside = [readers.submit(work_beside) for _ in range(min(many, settings.lakehouse_source_connections) - 1)]
    try:
        work(connection)
        for one in beside:
            await_idle(one, connection)
    finally:
        for other in others:
            with suppress(psycopg.Error):
                other.cancel()


def _exhaust(left: Iterator[Count]) -> None:
    for _ in left:
        pass
