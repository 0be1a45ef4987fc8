"""A Redis that tests publish to, and a client of it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from redis import Redis

from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.tap.follower import ClientTiming, Item
from synapse_lakehouse.replication.tap.redis_client import follow_redis
from tests.replication.database import Database

SERVER = "synapse.example"
FAST_TIMING = ClientTiming(ping=0.2, silence=1.0, first=0.01, longest=0.02)
EP1, EP2 = ("events", "ep1"), ("events", "ep2")


class Hub:
    """A Redis that a test publishes to."""

    def __init__(self, port: int) -> None:
        self.url = f"redis://127.0.0.1:{port}"
        self.client = Redis.from_url(self.url)
        self.execute: Callable[..., Any] = self.client.execute_command

    def publish(self, *lines: str, channel: str = SERVER) -> None:
        for line in lines:
            self.client.publish(channel, line)

    def break_connections(self) -> None:
        self.execute("CLIENT", "KILL", "TYPE", "pubsub")

    async def wait_for_subscriber(self) -> None:
        async with asyncio.timeout(60):
            while self.client.pubsub_numsub(SERVER)[0][1] == 0:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def open_client(
    hub: Hub, homeserver: Database, progress: Progress, timing: ClientTiming = FAST_TIMING
) -> AsyncIterator[AsyncGenerator[Item, None]]:
    reader = AsyncReader(homeserver.open_reader())
    async with aclosing(follow_redis(hub.url, SERVER, progress, reader, timing)) as items:
        yield items
    await reader.close()


async def take(items: AsyncIterator[Item], count: int) -> list[Item]:
    async with asyncio.timeout(60):
        return [await anext(items) for _ in range(count)]


async def wait_until_caught_up(progress: Progress) -> None:
    """Wait until the client has read earlier rows."""
    while not progress.is_connected:
        await asyncio.sleep(0.01)
