"""The Redis client receives commands, reconnects and sends pings, with a real Redis."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

import pytest
from redis import RedisError
from redis.asyncio.client import PubSub

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Progress, Update
from synapse_lakehouse.replication.tap import redis_client
from synapse_lakehouse.replication.tap.follower import Item
from synapse_lakehouse.replication.tap.redis_client import is_redis_url
from tests.replication.conversation import CountingTiming
from tests.replication.database import Database
from tests.replication.redis_hub import EP1, EP2, FAST_TIMING, SERVER, Hub, open_client, take, wait_until_caught_up


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
        async with open_client(hub, homeserver, Progress()) as items:
            take_task = asyncio.create_task(take(items, 14))
            await hub.wait_for_subscriber()
            assert hub.client.pubsub_channels() == [SERVER.encode()]
            await asyncio.to_thread(hub.publish, 'USER_IP @a ["token","127.0.0.1"]', channel=f"{SERVER}/USER_IP")
            await asyncio.to_thread(hub.publish, *lines)
            return await take_task

    received = asyncio.run(scenario())
    items = [item for item in received if not isinstance(item, Gap)]
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
    # Rows of each writer's first token may precede the subscription, and the database has no rows to check that.
    assert [(gap.stream, gap.after, gap.upto) for gap in received if isinstance(gap, Gap)] == [
        ("caches", 1, 4), ("caches", 4, 5), ("events", 1, 2),
    ]  # fmt: skip
    assert hub.client.info("commandstats")["cmdstat_publish"]["calls"] == len(lines) + 1


def test_a_redis_user_needs_no_right_to_publish(hub: Hub, homeserver: Database) -> None:
    rights = ["+subscribe", "+ping", "+hello", "+client|setname"]
    hub.execute("ACL", "SETUSER", "lakehouse", "on", ">secret", "resetchannels", f"&{SERVER}", *rights)
    hub.url = hub.url.replace("redis://", "redis://lakehouse:secret@")

    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, Progress()) as items:
            take_task = asyncio.create_task(take(items, 1))
            await hub.wait_for_subscriber()
            await asyncio.sleep(2.5 * FAST_TIMING.ping)
            await asyncio.to_thread(hub.publish, "NEW_ACTIVE_TASK a")
            return await take_task

    assert asyncio.run(scenario()) == [c.NewActiveTask("a")]


def test_delays_grow_while_redis_closes_connections(hub: Hub, homeserver: Database) -> None:
    timing = CountingTiming(ping=0.2)

    async def scenario() -> None:
        async with open_client(hub, homeserver, Progress(), timing) as items:
            take_task = asyncio.create_task(take(items, 1))
            while len(timing.attempts) < 3:
                await asyncio.sleep(0.01)
                await asyncio.to_thread(hub.break_connections)
            take_task.cancel()
            await asyncio.wait([take_task])

    asyncio.run(scenario())
    assert timing.attempts[:3] == [1, 2, 3]


def test_a_silent_redis_is_disconnected(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def answer_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
        server = await asyncio.start_server(answer_handshake, "127.0.0.1", 0)
        hub = Hub(server.sockets[0].getsockname()[1])
        async with server, open_client(hub, homeserver, Progress()) as items:
            received = asyncio.create_task(anext(items))
            while redis_client.__name__ not in {record.name for record in caplog.records}:
                await asyncio.sleep(0.05)
            received.cancel()
            await asyncio.wait([received])

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(scenario(), 60))


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
    homeserver.set_last_allocated("caches", 550_000_000)
    homeserver.add_event(70, "ep1")
    homeserver.set_last_allocated("events", 70)
    homeserver.set_position("events", "ep1", 70)

    async def scenario() -> list[Item]:
        async with open_client(hub, homeserver, progress) as items:
            take_task = asyncio.create_task(take(items, 2))
            await hub.wait_for_subscriber()
            await wait_until_caught_up(progress)
            await asyncio.to_thread(hub.publish, "POSITION caches ep1 550000000 550000000", "POSITION events ep2 70 70")
            return await take_task

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
        async with open_client(hub, homeserver, Progress()) as items:
            take_task = asyncio.create_task(take(items, 1))
            await hub.wait_for_subscriber()
            monkeypatch.setattr(PubSub, "aclose", fail)
            take_task.cancel()
            await asyncio.wait([take_task], timeout=10)
            assert take_task.cancelled()

    asyncio.run(scenario())
