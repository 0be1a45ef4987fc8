"""Live rows arrive within a second while clients read a large backlog from ``lakehouse replicate serve``."""

import asyncio
import statistics
import time
from contextlib import AsyncExitStack

import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from tests.replication.conversation import connect, run_serve_command
from tests.replication.database import Database

pytestmark = pytest.mark.heavy

READERS = 60
BACKLOG = 200_000
BURSTS = (1, 1, 1, 500, 1, 1, 1, 500, 1, 1, 1, 1000, 1, 1, 1)
"""Number of rows of each write; a second passes between two writes."""
SECONDS = 1.0


@pytest.fixture
def backlog_database(homeserver: Database) -> Database:
    """Return a homeserver's database with a large backlog."""
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op, instance_name)"
        " select n, 1, '@user' || n || ':synapse.example', 'x', 'ADD', 'sw1' from generate_series(2, %s) n", BACKLOG,
    )  # fmt: skip
    homeserver.execute("analyze push_rules_stream")
    homeserver.set_last_allocated("push_rules", BACKLOG)
    homeserver.set_position("push_rules", "sw1", BACKLOG)
    return homeserver


def test_live_rows_do_not_wait_for_backlogs(backlog_database: Database) -> None:
    waits = asyncio.run(_follow(backlog_database))
    print(f"median {statistics.median(waits):.2f} s, most {max(waits):.2f} s, all {[round(wait, 2) for wait in waits]}")
    assert max(waits) < SECONDS


async def _follow(database: Database) -> list[float]:
    """Return the seconds from each write until its last row arrives."""
    waits: list[float] = []
    async with run_serve_command(database, Dialect.TOKENS) as port, AsyncExitStack() as stack:
        live = await stack.enter_async_context(connect(port))
        live.send("REPLICATE events NOW")
        await live.read_until(lambda line: line.startswith("POSITION events"))
        # Each reader begins at another token, so that readers share no page.
        readers = [asyncio.create_task(_read_repeatedly(port, number)) for number in range(READERS)]
        await asyncio.sleep(3)
        token = 1
        for count in BURSTS:
            await asyncio.to_thread(_write, database, token + 1, count)
            token, since = token + count, time.monotonic()
            end = f"RDATA events {token} "
            async with asyncio.timeout(60):
                while not (await live.reader.readline()).decode().startswith(end):
                    pass
            waits.append(time.monotonic() - since)
            await asyncio.sleep(1)
        for reader in readers:
            assert not reader.done(), reader.exception()
            reader.cancel()
    return waits


async def _read_repeatedly(port: int, number: int) -> None:
    """Read the whole backlog again and again, from one of two addresses: each may have 50 connections."""
    while True:
        async with connect(port, f"127.0.0.{2 + number % 2}") as conversation:
            conversation.send(f"REPLICATE push_rules {number * 7}")
            end = f"RDATA push_rules {BACKLOG} ".encode()
            tail = b""
            while end not in tail:
                data = await conversation.reader.read(1 << 16)
                assert data, "the server closed the connection"
                tail = tail[-100:] + data


def _write(database: Database, first: int, count: int) -> None:
    database.execute(
        "insert into events (event_id, room_id, type, sender, stream_ordering, topological_ordering, depth, outlier,"
        " processed, instance_name) select '$e' || n, '!r', 'm.room.message', '@a', n, 1, 1, false, true, 'ep1'"
        " from generate_series(%s::int, %s::int) n",
        first, first + count - 1,
    )  # fmt: skip
    database.complete_events(first + count - 1)
