"""Listening on a real Redis."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError
from redis.asyncio.client import PubSub

from sample.redis import redis
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.stream_tokens import WENT_BACK, Gap, Progress, Update
from synapse_lakehouse.replication.server.async_reader import INCOMPLETE, NO_ROW, NO_TABLE, AsyncReader
from synapse_lakehouse.replication.tap import redis_client
from synapse_lakehouse.replication.tap.follower import ClientTiming, Item
from synapse_lakehouse.replication.tap.redis_client import follow_redis, is_redis_url
from tests.replication.conversation import Counted
from tests.replication.database import Database

SERVER = "synapse.example"
HASTY = ClientTiming(ping=0.2, silence=1.0, first=0.01, longest=0.02)
EP1, EP2 = ("events", "ep1"), ("events", "ep2")


class Hub:
    """A Redis that the test's processes publish on."""

    def __init__(self, port: int) -> None:
        self.url = f"redis://127.0.0.1:{port}"
        self.client = Redis.from_url(self.url)
        self.execute: Callable[..., Any] = self.client.execute_command

    def publish(self, *lines: str, channel: str = SERVER) -> None:
        for line in lines:
            self.client.publish(channel, line)

    def break_connections(self) -> None:
        self.execute("CLIENT", "KILL", "TYPE", "pubsub")

    async def subscribed(self) -> None:
        async with asyncio.timeout(60):
            while self.client.pubsub_numsub(SERVER)[0][1] == 0:
                await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def _port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("redis")
    with redis(folder, folder / "redis.log") as port:
        yield port


@pytest.fixture
def hub(_port: int) -> Hub:
    """The Redis, with nothing counted yet."""
    hub = Hub(_port)
    hub.client.config_resetstat()
    return hub


@asynccontextmanager
async def listening(
    hub: Hub, homeserver: Database, progress: Progress, timing: ClientTiming = HASTY
) -> AsyncIterator[AsyncGenerator[Item, None]]:
    reader = AsyncReader(homeserver.feed())
    async with aclosing(follow_redis(hub.url, SERVER, progress, reader, timing)) as items:
        yield items
    await reader.close()


async def take(items: AsyncIterator[Item], count: int) -> list[Item]:
    async with asyncio.timeout(60):
        return [await anext(items) for _ in range(count)]


async def caught_up(progress: Progress) -> None:
    """Until all that was written before is read."""
    while not progress.is_connected:
        await asyncio.sleep(0.01)


def test_all_commands_are_received_and_none_published(hub: Hub, homeserver: Database) -> None:
    lines = [
        'RDATA caches ep1 5 ["get_user_by_id",["@a:synapse.example"],1795216825120]',
        'RDATA events ep2 batch ["ev",["$a","!r:synapse.example","m.room.create","",null,null,null,false,false]]',
        'RDATA events ep2 2 ["state",["!r:synapse.example","m.room.create","","$a"]]',
        "POSITION device_lists sw1 1 2",
        'LOCK_RELEASED ["ep1","update_join_states_lock","@a:synapse.example"]',
        "NEW_ACTIVE_TASK aYRrMPhyfajdBZtE",
        "USER_SYNC PGHkD @a:synapse.example DEV1 start 1795216947534",
        "REPLICATE ",
        "SOMETHING new",
        "USER_SYNC of nobody",
        'RDATA typing sw1 1 ["!r:synapse.example",["@a:synapse.example"]]',
        'RDATA caches ep1 4 ["cs_cache_fake",["!r:synapse.example"],1795216825120]',
    ]

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress()) as items:
            first = asyncio.create_task(take(items, 14))
            await hub.subscribed()
            assert hub.client.pubsub_channels() == [SERVER.encode()]
            await asyncio.to_thread(hub.publish, 'USER_IP @a ["token","127.0.0.1"]', channel=f"{SERVER}/USER_IP")
            await asyncio.to_thread(hub.publish, *lines)
            return await first

    heard = asyncio.run(scenario())
    items = [item for item in heard if not isinstance(item, Gap)]
    assert items[1] == Update(
        *EP2, 2,
        (
            ["ev", ["$a", "!r:synapse.example", "m.room.create", "", None, None, None, False, False]],
            ["state", ["!r:synapse.example", "m.room.create", "", "$a"]],
        ),
    )  # fmt: skip
    assert [type(item) for item in items] == [
        Update, Update, c.Position, c.LockReleased, c.NewActiveTask, c.UserSync, c.Replicate, c.Unknown, c.Unknown,
        Update, Update,
    ]  # fmt: skip
    assert items[8] == c.Unknown("USER_SYNC", "of nobody")
    # The first token of each writer may have begun before anybody listened, and there are no rows to see that by.
    assert [(gap.stream, gap.after, gap.upto) for gap in heard if isinstance(gap, Gap)] == [
        ("caches", 1, 4), ("caches", 4, 5), ("events", 1, 2),
    ]  # fmt: skip
    assert hub.client.info("commandstats")["cmdstat_publish"]["calls"] == len(lines) + 1


def test_a_redis_user_needs_no_right_to_publish(hub: Hub, homeserver: Database) -> None:
    rights = ["+subscribe", "+ping", "+hello", "+client|setname"]
    hub.execute("ACL", "SETUSER", "lakehouse", "on", ">secret", "resetchannels", f"&{SERVER}", *rights)
    hub.url = hub.url.replace("redis://", "redis://lakehouse:secret@")

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress()) as items:
            first = asyncio.create_task(take(items, 1))
            await hub.subscribed()
            await asyncio.sleep(2.5 * HASTY.ping)
            await asyncio.to_thread(hub.publish, "NEW_ACTIVE_TASK a")
            return await first

    assert asyncio.run(scenario()) == [c.NewActiveTask("a")]


def test_tokens_missed_while_disconnected_are_read_once(
    hub: Hub, homeserver: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def happens(token: int, writer: str, *, is_published: bool) -> None:
        homeserver.event(token, writer)
        homeserver.handed_out("events", token)
        homeserver.position("events", writer, token)
        if is_published:
            hub.publish(f'RDATA events {writer} {token} ["ev",["$e{token}"]]')

    async def scenario() -> list[Item]:
        progress = Progress()
        async with listening(hub, homeserver, progress) as items:
            first = asyncio.create_task(take(items, 1))
            await hub.subscribed()
            # Both are announced only after the database was read, so that this is where following begins.
            while not progress.positions:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(happens, 2, "ep1", is_published=True)
            found = await first
            await asyncio.to_thread(happens, 3, "ep1", is_published=False)
            await asyncio.to_thread(happens, 4, "ep2", is_published=False)
            hub.break_connections()
            rest = asyncio.create_task(take(items, 6))
            await asyncio.sleep(0.1)
            await hub.subscribed()
            await asyncio.to_thread(hub.publish, 'RDATA events ep2 4 ["ev",["$e4"]]')
            await asyncio.to_thread(hub.publish, "POSITION events ep1 9 9")
            await asyncio.to_thread(happens, 10, "ep1", is_published=True)
            return found + await rest

    with caplog.at_level(logging.WARNING):
        items = asyncio.run(scenario())
    updates = [(one.instance, one.token) for one in items if isinstance(one, Update)]
    gaps = [(one.instance, one.after, one.upto, one.recovered) for one in items if isinstance(one, Gap)]
    assert updates == [("ep1", 2), ("ep1", 3), ("ep2", 4)]
    # 2, 3 and 4 have rows, so both writers are complete up to 4.
    assert gaps == [("ep1", 2, 4, 1), ("ep2", 1, 4, 1), ("ep1", 4, 9, 0)]
    assert redis_client.__name__ in {record.name for record in caplog.records}


def test_delays_grow_while_redis_closes_connections(hub: Hub, homeserver: Database) -> None:
    waited = Counted(ping=0.2)

    async def scenario() -> None:
        async with listening(hub, homeserver, Progress(), waited) as items:
            hearing = asyncio.create_task(take(items, 1))
            while len(waited.seen) < 3:
                await asyncio.sleep(0.01)
                await asyncio.to_thread(hub.break_connections)
            hearing.cancel()
            await asyncio.wait([hearing])

    asyncio.run(scenario())
    assert waited.seen[:3] == [1, 2, 3]


def test_missed_tokens_of_memory_only_streams_are_a_gap(hub: Hub, homeserver: Database) -> None:
    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress({("typing", "sw1"): 7})) as items:
            first = asyncio.create_task(take(items, 4))
            await hub.subscribed()
            for token in (11, 12, 1):
                await asyncio.to_thread(hub.publish, f'RDATA typing sw1 {token} ["!r",[]]')
            return await first

    gap, *updates = asyncio.run(scenario())
    assert isinstance(gap, Gap)
    assert (gap.after, gap.upto, gap.recovered) == (7, 10, 0)
    assert [update.token for update in updates if isinstance(update, Update)] == [11, 12, 1]


def test_a_silent_redis_is_disconnected(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = {
            b"SUBSCRIBE": b"*3\r\n$9\r\nsubscribe\r\n$15\r\nsynapse.example\r\n:1\r\n",
            b"HELLO": b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n",
            b"CLIENT": b"+OK\r\n",
        }
        # Several commands may come at once.
        while received := await reader.read(1 << 16):
            for command in re.findall(rb"\r\n(SUBSCRIBE|HELLO|CLIENT)\r\n", received):
                writer.write(answers[command])

    async def scenario() -> None:
        mute = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        hub = Hub(mute.sockets[0].getsockname()[1])
        async with mute, listening(hub, homeserver, Progress()) as items:
            heard = asyncio.create_task(anext(items))
            while redis_client.__name__ not in {record.name for record in caplog.records}:
                await asyncio.sleep(0.05)
            heard.cancel()
            await asyncio.wait([heard])

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_client_resumes_from_its_positions(hub: Hub, homeserver: Database) -> None:
    for token in (2, 3, 4):
        homeserver.event(token, "ep1")
    homeserver.done(4)

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress({EP1: 2})) as items:
            return await take(items, 3)

    items = asyncio.run(scenario())
    assert [item.token for item in items if isinstance(item, Update)] == [3, 4]
    assert isinstance(items[-1], Gap)


def test_rows_of_a_writer_that_came_up_meanwhile_are_read(hub: Hub, homeserver: Database) -> None:
    for token, writer in ((3, "new"), (4, "ep1"), (5, "new")):
        homeserver.event(token, writer)
        homeserver.position("events", writer, token)
    homeserver.handed_out("events", 5)

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress({EP1: 2})) as items:
            return await take(items, 5)

    items = asyncio.run(scenario())
    heard = [(item.instance, item.token) for item in items if isinstance(item, Update)]
    gaps = [(item.instance, item.after, item.recovered) for item in items if isinstance(item, Gap)]
    assert heard == [("ep1", 4), ("new", 3), ("new", 5)]
    assert gaps == [("ep1", 2, 1), ("new", 2, 2)]


def test_missed_caches_are_read(hub: Hub, homeserver: Database) -> None:
    for token in (5, 6):
        homeserver.invalidation(token, "ep1")
    homeserver.handed_out("caches", 7)

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress({("caches", "ep1"): 4})) as items:
            return await take(items, 3)

    *updates, gap = asyncio.run(scenario())
    assert [item.token for item in updates if isinstance(item, Update)] == [5, 6]
    assert isinstance(gap, Gap)
    assert (gap.after, gap.upto, gap.recovered) == (4, 7, 2)


def test_a_token_received_in_part_is_completed(hub: Hub, homeserver: Database) -> None:
    """Synapse announces a token before it writes down its writer's position."""
    homeserver.handed_out("events", 101)
    homeserver.position("events", "ep1", 90)
    homeserver.position("events", "ep2", 90)

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, progress) as items:
            first = asyncio.create_task(take(items, 7))
            await caught_up(progress)
            homeserver.event(100, "ep1")
            homeserver.event(101, "ep1")
            homeserver.state(101, "ep1", "@a", "@b")
            # Of 101, as of all of 103 but its last row, nobody heard the beginning.
            await asyncio.to_thread(
                hub.publish,
                'RDATA events ep1 batch ["state",["!r","m.room.member","@a","$e101"]]',
                'RDATA events ep1 101 ["state",["!r","m.room.member","@b","$e101"]]',
                'RDATA events ep1 102 ["ev",["$e102"]]',
                'RDATA events ep2 103 ["ev",["$e103"]]',
            )
            return await first

    progress = Progress({EP1: 90, EP2: 90})
    read, before, whole, heard, *cut = asyncio.run(scenario())
    assert [(one.token, len(one.rows), one.is_read) for one in (read, whole, heard) if isinstance(one, Update)] == [
        (100, 1, True), (101, 3, True), (102, 1, False),
    ]  # fmt: skip
    assert isinstance(before, Gap)
    assert (before.after, before.upto, before.recovered) == (90, 100, 1)
    assert [(one.after, one.upto, one.cause) for one in cut if isinstance(one, Gap)] == [
        (90, 102, NO_ROW), (102, 103, INCOMPLETE + NO_ROW),
    ]  # fmt: skip


def test_missed_tokens_of_an_unknown_stream_are_a_gap(hub: Hub, homeserver: Database) -> None:
    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, Progress({("novel", "ep1"): 5})) as items:
            first = asyncio.create_task(take(items, 4))
            await hub.subscribed()
            await asyncio.to_thread(hub.publish, "RDATA novel ep1 8 [1]", "POSITION novel ep1 9 10")
            return await first

    before, heard, position, missed = asyncio.run(scenario())
    assert isinstance(before, Gap)
    assert isinstance(missed, Gap)
    assert (before.after, before.upto, missed.after, missed.upto) == (5, 7, 8, 10)
    assert (type(heard), type(position)) == (Update, c.Position)
    assert missed.cause == NO_TABLE


def test_a_token_with_a_malformed_row_is_read(
    hub: Hub, homeserver: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> list[Item]:
        progress = Progress()
        async with listening(hub, homeserver, progress) as items:
            first = asyncio.create_task(take(items, 3))
            await caught_up(progress)
            for token in (2, 3):
                homeserver.event(token, "ep1")
                homeserver.state(token, "ep1", "@a")
            homeserver.handed_out("events", 3)
            homeserver.position("events", "ep1", 3)
            await asyncio.to_thread(
                hub.publish,
                'RDATA events ep1 batch ["ev",["$e2"]]',
                'RDATA events ep1 2 ["state",["half',
                'RDATA events ep1 3 ["ev",["$e3"]]',
            )
            return await first

    items = asyncio.run(scenario())
    assert [(one.token, len(one.rows), one.is_read) for one in items if isinstance(one, Update)] == [
        (2, 2, True), (3, 2, True),
    ]  # fmt: skip
    assert "RDATA: " in caplog.text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://127.0.0.1:6379", True),
        ("rediss://:pass%2Fword@redis.example:6379/0", True),
        ("redis://:pass/word@redis.example:6379", False),
        ("http://redis.example", False),
    ],
)
def test_redis_urls(url: str, *, expected: bool) -> None:
    assert is_redis_url(url) is expected


def test_new_sources_are_followed_from_now_on(hub: Hub, homeserver: Database) -> None:
    homeserver.handed_out("caches", 550_000_000)
    homeserver.event(70, "ep1")
    homeserver.handed_out("events", 70)
    homeserver.position("events", "ep1", 70)

    async def scenario() -> list[Item]:
        async with listening(hub, homeserver, progress) as items:
            first = asyncio.create_task(take(items, 2))
            await hub.subscribed()
            await caught_up(progress)
            await asyncio.to_thread(hub.publish, "POSITION caches ep1 550000000 550000000", "POSITION events ep2 70 70")
            return await first

    progress = Progress()
    assert [type(item) for item in asyncio.run(scenario())] == [c.Position, c.Position]
    assert progress.positions[("caches", "ep1")] == 550_000_000
    assert (progress.positions[EP1], progress.positions[EP2]) == (70, 70)


def test_a_cancelled_client_ends_although_closing_fails(
    hub: Hub, homeserver: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    close: Callable[[PubSub], Awaitable[None]] = PubSub.aclose

    async def fail(subscription: PubSub) -> None:
        await close(subscription)
        raise RedisError("the connection was broken before")

    async def scenario() -> None:
        async with listening(hub, homeserver, Progress()) as items:
            hearing = asyncio.create_task(take(items, 1))
            await hub.subscribed()
            monkeypatch.setattr(PubSub, "aclose", fail)
            hearing.cancel()
            await asyncio.wait([hearing], timeout=10)
            assert hearing.cancelled()

    asyncio.run(scenario())


def test_positions_follow_a_database_that_went_back(hub: Hub, homeserver: Database) -> None:
    """Once while the tap listens, and once while it does not."""
    homeserver.done(20)
    progress = Progress({EP1: 20, EP2: 20})

    async def restored_while_heard() -> list[Item]:
        async with listening(hub, homeserver, progress) as items:
            first = asyncio.create_task(take(items, 4))
            await caught_up(progress)
            homeserver.handed_out("events", 11)
            homeserver.event(11, "ep1")
            lines = ["POSITION events ep2 20 20", "POSITION events ep1 10 10", 'RDATA events ep1 11 ["ev",null]']
            await asyncio.to_thread(hub.publish, *lines)
            return await first

    unmoved, gap, position, update = asyncio.run(restored_while_heard())
    assert unmoved == c.Position(*EP2, 20, 20)
    assert gap == Gap(*EP1, 10, 20, 0, WENT_BACK)
    assert position == c.Position(*EP1, 10, 10)
    assert isinstance(update, Update)
    assert (update.instance, update.token) == ("ep1", 11)

    homeserver.position("events", "ep1", 11)
    homeserver.position("events", "ep2", 10)

    async def restored_meanwhile() -> list[Item]:
        async with listening(hub, homeserver, progress) as items:
            first = asyncio.create_task(take(items, 2))
            await caught_up(progress)
            homeserver.event(12, "ep2")
            homeserver.handed_out("events", 12)
            await asyncio.to_thread(hub.publish, 'RDATA events ep2 12 ["ev",null]')
            return await first

    gap, update = asyncio.run(restored_meanwhile())
    assert gap == Gap(*EP2, 11, 20, 0, WENT_BACK)
    assert isinstance(update, Update)
    assert (update.instance, update.token) == ("ep2", 12)
