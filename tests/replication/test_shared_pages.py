"""Subscribers of a backlog share pages, and do not delay live rows."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.server.async_reader import AsyncReader, Priority
from synapse_lakehouse.replication.server.shared_pages import SHARED_SECONDS, SharedPages
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from tests.replication.conversation import Conversation, connect, run_server
from tests.replication.database import Database

ROWS = 6_000


@pytest.fixture
def read_streams(homeserver: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the stream of each page that is read. The database has a backlog of rules, and it reads pages slowly."""
    pages: list[str] = []
    read_page = DatabaseReader.read_page

    def read_page_slowly(reader: DatabaseReader, source: Any, after: int, upto: int) -> Any:
        pages.append(source[0])
        time.sleep(0.03)
        return read_page(reader, source, after, upto)

    monkeypatch.setattr(DatabaseReader, "read_page", read_page_slowly)
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select n, 1, '@a', 'x', 'ADD' from generate_series(2, %s) n", ROWS,
    )  # fmt: skip
    homeserver.set_last_allocated("push_rules", ROWS)
    homeserver.set_position("push_rules", "sw1", ROWS)
    return pages


def test_subscribers_of_a_backlog_share_its_pages(homeserver: Database, read_streams: list[str]) -> None:
    async def follow() -> None:
        async with run_server(homeserver.open_reader(), Dialect.TOKENS) as port, AsyncExitStack() as stack:
            followers = [await stack.enter_async_context(connect(port)) for _ in range(20)]
            for follower in followers:
                follower.send("REPLICATE push_rules 1")
            received = await asyncio.gather(
                *(
                    follower.read_until(lambda line: line.startswith(f"RDATA push_rules {ROWS} "))
                    for follower in followers
                )
            )
        tokens = [[int(line.split()[2]) for line in lines if line.startswith("RDATA")] for lines in received]
        assert tokens == [list(range(2, ROWS + 1))] * 20

    asyncio.run(follow())
    assert len(read_streams) <= 3 * (ROWS // 1000)


@pytest.mark.parametrize("count", [1, 300])
def test_live_rows_precede_backlogs(homeserver: Database, read_streams: list[str], count: int) -> None:
    async def subscribe(conversation: Conversation, line: str) -> None:
        conversation.send(line)
        await conversation.read_until(lambda line: line.startswith("POSITION"))

    async def follow() -> None:
        async with run_server(homeserver.open_reader(), Dialect.TOKENS) as port, AsyncExitStack() as stack:
            live = await stack.enter_async_context(connect(port))
            await subscribe(live, "REPLICATE events NOW")
            for number in range(40):
                reader = await stack.enter_async_context(connect(port))
                # Each reader begins at another token, so that readers share no page.
                await subscribe(reader, f"REPLICATE push_rules {number + 1}")
            for token in range(2, 2 + count):
                homeserver.add_event(token, "ep1")
            homeserver.complete_events(1 + count)
            pages_before = len(read_streams)
            await live.read_until(lambda line: line.startswith(f"RDATA events {1 + count} "))
            assert "push_rules" in read_streams[pages_before:], "no backlog page was read"
            # The server may read several pages before it reads the new position.
            assert len(read_streams) - pages_before < 20

    asyncio.run(follow())


def test_waiting_reads_are_ordered_by_priority(homeserver: Database) -> None:
    async def scenario() -> list[Priority]:
        reader = AsyncReader(homeserver.open_reader())
        order: list[Priority] = []

        def start_call(priority: Priority) -> asyncio.Task[None]:
            return asyncio.create_task(reader.call(priority, order.append, priority))

        running = asyncio.create_task(reader.call(backlog, time.sleep, 0.2))
        await asyncio.sleep(0)
        waiting = [start_call(priority) for priority in (backlog, live, backlog, Priority.POSITIONS, live)]
        await asyncio.sleep(0)
        waiting.pop(0).cancel()
        await asyncio.gather(running, *waiting)
        # A task that is cancelled in its turn lets the next task run.
        cancelled = asyncio.create_task(reader.call(live, time.sleep, 0.05))
        await asyncio.sleep(0)
        cancelled.cancel()
        await start_call(backlog)
        await reader.close()
        return order

    live, backlog = Priority.LIVE, Priority.BACKLOG
    assert asyncio.run(scenario()) == [Priority.POSITIONS, live, live, backlog, backlog]


def test_pages_expire_and_failed_reads_are_not_shared(homeserver: Database, read_streams: list[str]) -> None:
    async def scenario() -> None:
        reader = AsyncReader(homeserver.open_reader())
        pages, unshared = (SharedPages(reader, Dialect.TOKENS, seconds) for seconds in (SHARED_SECONDS, 0.0))
        source = ("push_rules", None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DatabaseReader, "read_page", lambda *_: 1 / 0)
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    await pages.get(source, 1, 3, is_live=False)
        first, second = await asyncio.gather(*(pages.get(source, 1, 3, is_live=is_live) for is_live in (False, True)))
        assert first is second
        assert (first.last, first.upto, first.lines.count(b"\n")) == (3, 3, 2)
        expired = await unshared.get(source, 1, 3, is_live=False)
        await asyncio.sleep(0.01)
        assert await unshared.get(source, 1, 3, is_live=False) is not expired
        pages.clear()
        assert await pages.get(source, 1, 2, is_live=False) is not first
        await reader.close()

    asyncio.run(scenario())
    assert len(read_streams) == 4
