"""Tokens that the Redis client missed are read from the database."""

import asyncio
import logging

import pytest

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.stream_tokens import WENT_BACK, Gap, Progress, Update
from synapse_lakehouse.replication.server.async_reader import INCOMPLETE, NO_ROW, NO_TABLE
from synapse_lakehouse.replication.tap import redis_client
from synapse_lakehouse.replication.tap.follower import Item
from tests.replication.database import Database
from tests.replication.redis_hub import EP1, EP2, Hub, open_client, take, wait_until_caught_up


def test_tokens_missed_while_disconnected_are_read_once(
    hub: Hub, homeserver: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def write_event(token: int, writer: str, *, is_published: bool) -> None:
        homeserver.add_event(token, writer)
        homeserver.set_last_allocated("events", token)
        homeserver.set_position("events", writer, token)
        if is_published:
            hub.publish(f'RDATA events {writer} {token} ["ev",["$e{token}"]]')

    async def scenario() -> list[Item]:
        progress = Progress()
        async with open_client(hub, homeserver, progress) as items:
            take_task = asyncio.create_task(take(items, 1))
            await hub.wait_for_subscriber()
            # Announce both writers after the database was read, so that following starts at the announced tokens.
            while not progress.positions:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(write_event, 2, "ep1", is_published=True)
            actual = await take_task
            await asyncio.to_thread(write_event, 3, "ep1", is_published=False)
            await asyncio.to_thread(write_event, 4, "ep2", is_published=False)
            hub.break_connections()
            rest_task = asyncio.create_task(take(items, 6))
            await asyncio.sleep(0.1)
            await hub.wait_for_subscriber()
            await asyncio.to_thread(hub.publish, 'RDATA events ep2 4 ["ev",["$e4"]]')
            await asyncio.to_thread(hub.publish, "POSITION events ep1 9 9")
            await asyncio.to_thread(write_event, 10, "ep1", is_published=True)
            return actual + await rest_task

    with caplog.at_level(logging.WARNING):
        items = asyncio.run(scenario())
    updates = [(item.instance, item.token) for item in items if isinstance(item, Update)]
    gaps = [(item.instance, item.after, item.upto, item.recovered) for item in items if isinstance(item, Gap)]
    assert updates == [("ep1", 2), ("ep1", 3), ("ep2", 4)]
    # 2, 3 and 4 have rows, so both writers are complete up to 4.
    assert gaps == [("ep1", 2, 4, 1), ("ep2", 1, 4, 1), ("ep1", 4, 9, 0)]
    assert redis_client.__name__ in {record.name for record in caplog.records}


def test_missed_tokens_of_memory_only_streams_are_a_gap(hub: Hub, homeserver: Database) -> None:
    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, Progress({("typing", "sw1"): 7})) as items:
            take_task = asyncio.create_task(take(items, 4))
            await hub.wait_for_subscriber()
            for token in (11, 12, 1):
                await asyncio.to_thread(hub.publish, f'RDATA typing sw1 {token} ["!r",[]]')
            return await take_task

    gap, *updates = asyncio.run(scenario())
    assert isinstance(gap, Gap)
    assert (gap.after, gap.upto, gap.recovered) == (7, 10, 0)
    assert [update.token for update in updates if isinstance(update, Update)] == [11, 12, 1]


def test_the_client_resumes_from_its_positions(hub: Hub, homeserver: Database) -> None:
    for token in (2, 3, 4):
        homeserver.add_event(token, "ep1")
    homeserver.complete_events(4)

    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, Progress({EP1: 2})) as items:
            return await take(items, 3)

    items = asyncio.run(scenario())
    assert [item.token for item in items if isinstance(item, Update)] == [3, 4]
    assert isinstance(items[-1], Gap)


def test_rows_of_a_writer_that_started_meanwhile_are_read(hub: Hub, homeserver: Database) -> None:
    for token, writer in ((3, "new"), (4, "ep1"), (5, "new")):
        homeserver.add_event(token, writer)
        homeserver.set_position("events", writer, token)
    homeserver.set_last_allocated("events", 5)

    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, Progress({EP1: 2})) as items:
            return await take(items, 5)

    items = asyncio.run(scenario())
    received = [(item.instance, item.token) for item in items if isinstance(item, Update)]
    gaps = [(item.instance, item.after, item.recovered) for item in items if isinstance(item, Gap)]
    assert received == [("ep1", 4), ("new", 3), ("new", 5)]
    assert gaps == [("ep1", 2, 1), ("new", 2, 2)]


def test_missed_caches_are_read(hub: Hub, homeserver: Database) -> None:
    for token in (5, 6):
        homeserver.add_invalidation(token, "ep1")
    homeserver.set_last_allocated("caches", 7)

    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, Progress({("caches", "ep1"): 4})) as items:
            return await take(items, 3)

    *updates, gap = asyncio.run(scenario())
    assert [item.token for item in updates if isinstance(item, Update)] == [5, 6]
    assert isinstance(gap, Gap)
    assert (gap.after, gap.upto, gap.recovered) == (4, 7, 2)


def test_a_token_received_in_part_is_completed(hub: Hub, homeserver: Database) -> None:
    """Synapse announces a token before it stores the writer's position."""
    homeserver.set_last_allocated("events", 101)
    homeserver.set_position("events", "ep1", 90)
    homeserver.set_position("events", "ep2", 90)

    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, progress) as items:
            take_task = asyncio.create_task(take(items, 7))
            await wait_until_caught_up(progress)
            homeserver.add_event(100, "ep1")
            homeserver.add_event(101, "ep1")
            homeserver.add_state(101, "ep1", "@a", "@b")
            # The first rows of 101 and 103 are not received.
            await asyncio.to_thread(
                hub.publish,
                'RDATA events ep1 batch ["state",["!r","m.room.member","@a","$e101"]]',
                'RDATA events ep1 101 ["state",["!r","m.room.member","@b","$e101"]]',
                'RDATA events ep1 102 ["ev",["$e102"]]',
                'RDATA events ep2 103 ["ev",["$e103"]]',
            )
            return await take_task

    progress = Progress({EP1: 90, EP2: 90})
    read_update, first_gap, completed_update, received_update, *later_gaps = asyncio.run(scenario())
    updates = [item for item in (read_update, completed_update, received_update) if isinstance(item, Update)]
    assert [(update.token, len(update.rows), update.is_read) for update in updates] == [
        (100, 1, True), (101, 3, True), (102, 1, False),
    ]  # fmt: skip
    assert isinstance(first_gap, Gap)
    assert (first_gap.after, first_gap.upto, first_gap.recovered) == (90, 100, 1)
    assert [(item.after, item.upto, item.cause) for item in later_gaps if isinstance(item, Gap)] == [
        (90, 102, NO_ROW), (102, 103, INCOMPLETE + NO_ROW),
    ]  # fmt: skip


def test_missed_tokens_of_an_unknown_stream_are_a_gap(hub: Hub, homeserver: Database) -> None:
    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, Progress({("novel", "ep1"): 5})) as items:
            take_task = asyncio.create_task(take(items, 4))
            await hub.wait_for_subscriber()
            await asyncio.to_thread(hub.publish, "RDATA novel ep1 8 [1]", "POSITION novel ep1 9 10")
            return await take_task

    first_gap, update, position, last_gap = asyncio.run(scenario())
    assert isinstance(first_gap, Gap)
    assert isinstance(last_gap, Gap)
    assert (first_gap.after, first_gap.upto, last_gap.after, last_gap.upto) == (5, 7, 8, 10)
    assert (type(update), type(position)) == (Update, c.Position)
    assert last_gap.cause == NO_TABLE


def test_a_token_with_a_malformed_row_is_read(hub: Hub, homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[Item]:
        progress = Progress()
        async with open_client(hub, homeserver, progress) as items:
            take_task = asyncio.create_task(take(items, 3))
            await wait_until_caught_up(progress)
            for token in (2, 3):
                homeserver.add_event(token, "ep1")
                homeserver.add_state(token, "ep1", "@a")
            homeserver.set_last_allocated("events", 3)
            homeserver.set_position("events", "ep1", 3)
            await asyncio.to_thread(
                hub.publish,
                'RDATA events ep1 batch ["ev",["$e2"]]',
                'RDATA events ep1 2 ["state",["half',
                'RDATA events ep1 3 ["ev",["$e3"]]',
            )
            return await take_task

    items = asyncio.run(scenario())
    assert [(item.token, len(item.rows), item.is_read) for item in items if isinstance(item, Update)] == [
        (2, 2, True), (3, 2, True),
    ]  # fmt: skip
    assert "RDATA: " in caplog.text


def test_positions_follow_a_database_that_went_back(hub: Hub, homeserver: Database) -> None:
    """The database is restored once while the tap is connected, and once while it is not."""
    homeserver.complete_events(20)
    progress = Progress({EP1: 20, EP2: 20})

    async def restore_while_connected() -> list[Item]:
        async with open_client(hub, homeserver, progress) as items:
            take_task = asyncio.create_task(take(items, 4))
            await wait_until_caught_up(progress)
            homeserver.set_last_allocated("events", 11)
            homeserver.add_event(11, "ep1")
            lines = ["POSITION events ep2 20 20", "POSITION events ep1 10 10", 'RDATA events ep1 11 ["ev",null]']
            await asyncio.to_thread(hub.publish, *lines)
            return await take_task

    unchanged_position, gap, position, update = asyncio.run(restore_while_connected())
    assert unchanged_position == c.Position(*EP2, 20, 20)
    assert gap == Gap(*EP1, 10, 20, 0, WENT_BACK)
    assert position == c.Position(*EP1, 10, 10)
    assert isinstance(update, Update)
    assert (update.instance, update.token) == ("ep1", 11)

    homeserver.set_position("events", "ep1", 11)
    homeserver.set_position("events", "ep2", 10)

    async def restore_while_disconnected() -> list[Item]:
        async with open_client(hub, homeserver, progress) as items:
            take_task = asyncio.create_task(take(items, 2))
            await wait_until_caught_up(progress)
            homeserver.add_event(12, "ep2")
            homeserver.set_last_allocated("events", 12)
            await asyncio.to_thread(hub.publish, 'RDATA events ep2 12 ["ev",null]')
            return await take_task

    gap, update = asyncio.run(restore_while_disconnected())
    assert gap == Gap(*EP2, 11, 20, 0, WENT_BACK)
    assert isinstance(update, Update)
    assert (update.instance, update.token) == ("ep2", 12)
