"""The server and the clients refuse millions of random lines in every dialect, and their memory does not grow."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from random import Random

import pytest
from redis import Redis

from sample.redis import redis
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import WORDS
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import encode_line
from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.tap.follower import ClientTiming
from synapse_lakehouse.replication.tap.redis_client import follow_redis
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, follow_server
from tests.replication.conversation import connect, run_server
from tests.replication.database import Database

pytestmark = pytest.mark.heavy

LINES = 1_000_000
GROWTH = 1 << 20


@pytest.fixture(autouse=True)
def _disable_logging() -> Iterator[None]:
    """Disable logging, because pytest stores every warning."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    tracemalloc.stop()


def noise(random: Random, count: int, commands: float = 0.01) -> bytes:
    """Return lines of random bytes; the share ``commands`` of them begins with the word of a command."""
    words = [word.encode() for word in WORDS]
    lines = []
    for _ in range(count):
        start = random.choice(words) + b" " if random.random() < commands else b""
        lines.append(start + random.randbytes(random.randrange(40)).replace(b"\n", b""))
    return b"\n".join(lines) + b"\n"


def count_live_bytes() -> int:
    """Return the bytes of live objects, without those of broken connections."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize(
    ("dialect", "request_line", "answer"),
    [
        (Dialect.TOKENS, "REPLICATE events 4400", "RDATA events"),
        (Dialect.INSTANCES, "REPLICATE", "POSITION events persister1"),
    ],
)
def test_the_server_survives_random_lines(sample: Database, dialect: Dialect, request_line: str, answer: str) -> None:
    async def scenario() -> int:
        random, sent = Random(1), 0
        async with run_server(sample.open_reader(), dialect) as port:
            while sent < LINES:
                async with connect(port) as conversation:
                    with suppress(OSError):
                        while not conversation.reader.at_eof() and sent < LINES:
                            conversation.writer.write(noise(random, 2000))
                            sent += 2000
                            await conversation.writer.drain()
                            await asyncio.sleep(0)
                if sent >= 20_000 and not tracemalloc.is_tracing():
                    tracemalloc.start()
            async with connect(port) as conversation:
                conversation.send(request_line)
                assert (await conversation.read_until(lambda line: line.startswith(answer)))[-1].startswith(answer)
        assert tracemalloc.is_tracing()
        return count_live_bytes()

    assert asyncio.run(scenario()) < GROWTH


@pytest.mark.parametrize(("dialect", "instance"), [(Dialect.TOKENS, None), (Dialect.INSTANCES, "ep1")])
def test_the_client_survives_random_lines(sample: Database, dialect: Dialect, instance: str | None) -> None:
    sent, source = 0, ("events", instance)

    async def send_noise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"SERVER synapse.example\n")
        random = Random(sent)
        with suppress(OSError):
            while not writer.is_closing() and sent < LINES:
                writer.write(noise(random, 2000))
                sent += 2000
                await writer.drain()
                await asyncio.sleep(0)
        if sent >= LINES:
            writer.write((encode_line(c.Rdata(*source, 2, [1]), dialect) + b"\n") * 2)

    async def scenario() -> int:
        server = await asyncio.start_server(send_noise, "127.0.0.1", 0)
        address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1], dialect, "synapse.example")
        progress, timing = Progress({source: 1}), ClientTiming(first=0.0, longest=0.0)
        reader = AsyncReader(sample.open_reader())
        items = follow_server(address, progress, reader, streams=["events"], timing=timing)
        async with server, aclosing(items):
            async for _ in items:
                if sent >= 20_000 and not tracemalloc.is_tracing():
                    tracemalloc.start()
                if progress.positions[source] == 2:
                    break
        await reader.close()
        assert tracemalloc.is_tracing()
        return count_live_bytes()

    assert asyncio.run(scenario()) < GROWTH


def test_the_redis_client_survives_random_messages(sample: Database, tmp_path: Path) -> None:
    def publish(hub: Redis, data: bytes) -> None:
        with hub.pipeline(transaction=False) as pipeline:
            for line in data.split(b"\n"):
                pipeline.publish("synapse.example", line)
            pipeline.execute()

    async def scenario(port: int) -> int:
        random, received, progress, hub = Random(1), 0, Progress(), Redis(port=port)

        async def receive() -> None:
            nonlocal received
            async for item in items:
                received += 1
                if item == c.NewActiveTask("end"):
                    break

        reader, timing = AsyncReader(sample.open_reader()), ClientTiming(first=0.0, longest=0.0)
        items = follow_redis(f"redis://127.0.0.1:{port}", "synapse.example", progress, reader, timing)
        async with aclosing(items):
            receive_task = asyncio.create_task(receive())
            while received < LINES:
                while not progress.is_connected:
                    assert not receive_task.done()
                    await asyncio.sleep(0.001)
                # A malformed command that moves positions ends the connection; later lines are lost until it is back.
                await asyncio.to_thread(publish, hub, noise(random, 2000, commands=0.001))
                if received >= 20_000 and not tracemalloc.is_tracing():
                    tracemalloc.start()
            while not receive_task.done():
                await asyncio.to_thread(publish, hub, b"NEW_ACTIVE_TASK end")
                await asyncio.sleep(0.1)
        await receive_task
        await reader.close()
        hub.close()
        assert tracemalloc.is_tracing()
        return count_live_bytes()

    with redis(tmp_path, tmp_path / "redis.log") as port:
        assert asyncio.run(scenario(port)) < GROWTH
