"""Random lines by the million: whoever speaks nonsense is refused, and neither side grows."""

import asyncio
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing, suppress
from random import Random

import pytest

from synapse_lakehouse.replication.client import Address, follow
from synapse_lakehouse.replication.commands import WORDS
from synapse_lakehouse.replication.following import Patience
from synapse_lakehouse.replication.grammar import Dialect
from synapse_lakehouse.replication.updates import Progress
from tests.replication.conversation import connected, serving
from tests.replication.database import Database

pytestmark = pytest.mark.heavy

LINES = 1_000_000
GROWTH = 1 << 20


@pytest.fixture(autouse=True)
def _unlogged() -> Iterator[None]:
    """Pytest would keep every warning."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    tracemalloc.stop()


def noise(random: Random, count: int) -> bytes:
    """Lines of random bytes, some of which begin as a command does."""
    words = [word.encode() for word in WORDS]
    lines = []
    for _ in range(count):
        start = random.choice(words) + b" " if random.random() < 0.01 else b""
        lines.append(start + random.randbytes(random.randrange(40)).replace(b"\n", b""))
    return b"\n".join(lines) + b"\n"


def test_the_server_outlives_nonsense(sample: Database) -> None:
    async def scenario() -> int:
        random, sent = Random(1), 0
        async with serving(sample.feed(), Dialect.TOKENS) as port:
            while sent < LINES:
                async with connected(port) as conversation:
                    with suppress(OSError):
                        while not conversation.reader.at_eof() and sent < LINES:
                            conversation.writer.write(noise(random, 2000))
                            sent += 2000
                            await conversation.writer.drain()
                            await asyncio.sleep(0)
                if sent >= 20_000 and not tracemalloc.is_tracing():
                    tracemalloc.start()
            async with connected(port) as conversation:
                conversation.say("REPLICATE events 4400")
                await conversation.until(lambda line: line.startswith("RDATA events"))
        assert tracemalloc.is_tracing()
        return tracemalloc.get_traced_memory()[0]

    assert asyncio.run(scenario()) < GROWTH


def test_the_client_outlives_nonsense() -> None:
    sent = 0

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
            writer.write(b"RDATA events 2 [1]\n" * 2)

    async def scenario() -> int:
        running = await asyncio.start_server(babble, "127.0.0.1", 0)
        address = Address("127.0.0.1", running.sockets[0].getsockname()[1], Dialect.TOKENS, "synapse.example")
        progress, patience = Progress({("events", None): 1}), Patience(first=0.0, most=0.0)
        async with running, aclosing(follow(address, progress, streams=["events"], patience=patience)) as items:
            async for _ in items:
                if sent >= 20_000 and not tracemalloc.is_tracing():
                    tracemalloc.start()
                if progress.positions["events", None] == 2:
                    break
        assert tracemalloc.is_tracing()
        return tracemalloc.get_traced_memory()[0]

    assert asyncio.run(scenario()) < GROWTH
