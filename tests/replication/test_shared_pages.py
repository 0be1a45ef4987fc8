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
from tests.replication.conversation import Conversation, connected, serving
from tests.replication.database import Database

ROWS = 6_000


@pytest.fixture
def read(homeserver: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams of the read pages, in order, of a database with a backlog of rules and slow pages."""
    pages: list[str] = []
    page = DatabaseReader.read_page

    def slow_page(feed: DatabaseReader, source: Any, after: int, upto: int) -> Any:
        pages.append(source[0])
        time.sleep(0.03)
        return page(feed, source, after, upto)

    monkeypatch.setattr(DatabaseReader, "read_page", slow_page)
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select n, 1, '@a', 'x', 'ADD' from generate_series(2, %s) n", ROWS,
    )  # fmt: skip
    homeserver.set_last_allocated("push_rules", ROWS)
    homeserver.set_position("push_rules", "sw1", ROWS)
    return pages


def test_subscribers_of_a_backlog_share_its_pages(homeserver: Database, read: list[str]) -> None:
    async def follow() -> None:
        async with serving(homeserver.open_reader(), Dialect.TOKENS) as port, AsyncExitStack() as open_:
            followers = [await open_.enter_async_context(connected(port)) for _ in range(20)]
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
    assert len(read) <= 3 * (ROWS // 1000)


@pytest.mark.parametrize("count", [1, 300])
def test_live_rows_precede_backlogs(homeserver: Database, read: list[str], count: int) -> None:
    async def begin(conversation: Conversation, line: str) -> None:
        conversation.send(line)
        await conversation.read_until(lambda line: line.startswith("POSITION"))

    async def follow() -> None:
        async with serving(homeserver.open_reader(), Dialect.TOKENS) as port, AsyncExitStack() as open_:
            live = await open_.enter_async_context(connected(port))
            await begin(live, "REPLICATE events NOW")
            for number in range(40):
                behind = await open_.enter_async_context(connected(port))
                # From tokens of their own, so that they share nothing.
                await begin(behind, f"REPLICATE push_rules {number + 1}")
            for token in range(2, 2 + count):
                homeserver.add_event(token, "ep1")
            homeserver.complete_events(1 + count)
            before = len(read)
            await live.read_until(lambda line: line.startswith(f"RDATA events {1 + count} "))
            assert "push_rules" in read[before:], "the others are still reading"
            # Several may be read before the new position is.
            assert len(read) - before < 20

    asyncio.run(follow())


def test_waiting_reads_are_ordered_by_priority(homeserver: Database) -> None:
    async def ask() -> list[Priority]:
        reader = AsyncReader(homeserver.open_reader())
        order: list[Priority] = []

        def call(priority: Priority) -> asyncio.Task[None]:
            return asyncio.create_task(reader.call(priority, order.append, priority))

        first = asyncio.create_task(reader.call(backlog, time.sleep, 0.2))
        await asyncio.sleep(0)
        waiting = [call(priority) for priority in (backlog, live, backlog, Priority.POSITIONS, live)]
        await asyncio.sleep(0)
        waiting.pop(0).cancel()
        await asyncio.gather(first, *waiting)
        # A task that was cancelled when its turn had come gives it on.
        cancelled = asyncio.create_task(reader.call(live, time.sleep, 0.05))
        await asyncio.sleep(0)
        cancelled.cancel()
        await call(backlog)
        await reader.close()
        return order

    live, backlog = Priority.LIVE, Priority.BACKLOG
    assert asyncio.run(ask()) == [Priority.POSITIONS, live, live, backlog, backlog]


def test_pages_expire_and_failed_ones_are_not_shared(homeserver: Database, read: list[str]) -> None:
    async def ask() -> None:
        reader = AsyncReader(homeserver.open_reader())
        pages, unshared = (SharedPages(reader, Dialect.TOKENS, seconds) for seconds in (SHARED_SECONDS, 0.0))
        source = ("push_rules", None)
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(DatabaseReader, "read_page", lambda *_: 1 / 0)
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

    asyncio.run(ask())
    assert len(read) == 4
