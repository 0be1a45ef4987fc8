"""The client and the server over real TCP, through a network that breaks."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from synapse_lakehouse.replication.protocol.commands import Position, Unknown
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import WENT_BACK, Gap, Progress, Update
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.tap.follower import ClientTiming, Item
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, WrongServerError, follow_server
from tests.replication.conversation import CountingTiming, run_server
from tests.replication.database import Database

FAST_TIMING = ClientTiming(ping=0.1, silence=1.0, first=0.01, longest=0.02)
TOKENS = range(2, 120)


def write_events(homeserver: Database, random: Random) -> None:
    """Write events of two persisters that take turns, with gaps, batches of state, and positions that lag behind."""
    for token in TOKENS:
        writer = random.choice(["ep1", "ep2"])
        if random.random() < 0.8:
            homeserver.add_event(token, writer)
            homeserver.add_state(token, writer, *(f"@{n}" for n in range(random.choice([0, 0, 1, 4]))))
        homeserver.set_last_allocated("events", token)
        homeserver.set_position("events", writer, token)
    for writer in ("ep1", "ep2"):
        homeserver.set_position("events", writer, TOKENS[-1])


def count_rows_by_token(homeserver: Database, *, by_writer: bool) -> dict[Any, int]:
    """Return the number of rows in the database for each token."""
    rows = homeserver.execute(
        "select instance_name, id, count(*)::int from (select instance_name, stream_ordering as id from events"
        " union all select instance_name, stream_id from current_state_delta_stream) _ group by 1, 2"
    )
    return {(writer, token) if by_writer else token: count for writer, token, count in rows}


@asynccontextmanager
async def unreliable_relay(port: int, random: Random) -> AsyncIterator[int]:
    """Yield the port of a relay to ``port`` that breaks each connection after some bytes, sometimes after one."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        remaining = random.choice([1, 60, 600, 6000])

        async def forward() -> None:
            while data := await reader.read(1 << 16):
                upstream_writer.write(data)

        forward_task = asyncio.create_task(forward())
        with suppress(OSError):
            while remaining > 0 and (data := await upstream_reader.read(remaining)):
                writer.write(data)
                await writer.drain()
                remaining -= len(data)
        forward_task.cancel()
        upstream_writer.transport.abort()
        writer.close()

    relay_server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield relay_server.sockets[0].getsockname()[1]
    finally:
        relay_server.close()


async def take_until(server_items: AsyncIterator[Item], is_last: Callable[[Item], bool]) -> list[Item]:
    """Return the items up to the first one that satisfies ``is_last``."""
    results = []
    async with asyncio.timeout(30):
        async for item in server_items:
            results.append(item)
            if is_last(item):
                break
    return results


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(2, 22))]


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_arrive_once_over_a_breaking_network(homeserver: Database, seed: int) -> None:
    async def scenario() -> tuple[list[Update], Progress]:
        random, progress = Random(seed), Progress({("events", None): 1})
        reader = AsyncReader(homeserver.open_reader())
        async with (
            run_server(homeserver.open_reader(), Dialect.TOKENS) as port,
            unreliable_relay(port, random) as relay_port,
        ):
            address = ServerAddress("127.0.0.1", relay_port, Dialect.TOKENS, "synapse.example")
            write_task = asyncio.create_task(asyncio.to_thread(write_events, homeserver, random))
            server_items = follow_server(address, progress, reader, streams=["events"], timing=FAST_TIMING)
            async with aclosing(server_items):
                items = await take_until(server_items, lambda _: progress.positions[("events", None)] == TOKENS[-1])
            await write_task
        await reader.close()
        return [item for item in items if isinstance(item, Update)], progress

    updates, progress = asyncio.run(scenario())
    assert {update.token: len(update.rows) for update in updates} == count_rows_by_token(homeserver, by_writer=False)
    assert [update.token for update in updates] == sorted({update.token for update in updates})
    assert progress.repeated == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_missed_tokens_of_instances_are_read(homeserver: Database, seed: int) -> None:
    sources = [("events", "ep1"), ("events", "ep2")]

    async def scenario() -> list[Item]:
        random, progress = Random(seed), Progress(dict.fromkeys(sources, 1))
        reader = AsyncReader(homeserver.open_reader())
        async with (
            run_server(homeserver.open_reader(), Dialect.INSTANCES) as port,
            unreliable_relay(port, random) as relay_port,
        ):
            address = ServerAddress("127.0.0.1", relay_port, Dialect.INSTANCES, "synapse.example")
            write_task = asyncio.create_task(asyncio.to_thread(write_events, homeserver, random))
            async with aclosing(follow_server(address, progress, reader, timing=FAST_TIMING)) as server_items:
                items = await take_until(
                    server_items, lambda _: all(progress.positions[source] == TOKENS[-1] for source in sources)
                )
            await write_task
        await reader.close()
        return items

    items = asyncio.run(scenario())
    updates = [item for item in items if isinstance(item, Update)]
    assert {(item.instance, item.token): len(item.rows) for item in updates} == count_rows_by_token(
        homeserver, by_writer=True
    )
    assert len(updates) == len({(item.instance, item.token) for item in updates})
    assert any(isinstance(item, Gap) and item.recovered for item in items)


def test_the_client_resumes_after_a_server_restart(homeserver: Database) -> None:
    progress, received = Progress({("events", None): 1}), list[int]()

    async def follow_until(upto: int) -> None:
        reader = AsyncReader(homeserver.open_reader())
        async with run_server(homeserver.open_reader(), Dialect.TOKENS) as port:
            address = ServerAddress("127.0.0.1", port, Dialect.TOKENS, "synapse.example")
            server_items = follow_server(address, progress, reader, streams=["events"], timing=FAST_TIMING)
            async with aclosing(server_items):
                items = await take_until(server_items, lambda _: progress.positions[("events", None)] == upto)
                received.extend(item.token for item in items if isinstance(item, Update))
        await reader.close()

    for token in (2, 3):
        homeserver.add_event(token, "ep1")
        homeserver.complete_events(token)
        asyncio.run(follow_until(token))
    assert received == [2, 3]


@pytest.mark.parametrize("stream", ["events", "caches"])
def test_the_client_follows_a_database_that_went_back(homeserver: Database, stream: str) -> None:
    progress = Progress({(stream, None): 20})
    homeserver.complete_events(10)
    homeserver.set_last_allocated("caches", 10)

    async def resume() -> list[Item]:
        reader = AsyncReader(homeserver.open_reader())
        async with run_server(homeserver.open_reader(), Dialect.TOKENS) as port:
            address = ServerAddress("127.0.0.1", port, Dialect.TOKENS, "synapse.example")
            server_items = follow_server(address, progress, reader, streams=[stream], timing=FAST_TIMING)
            async with aclosing(server_items):
                first = await take_until(server_items, lambda item: isinstance(item, Position))
                homeserver.add_event(11, "ep1")
                homeserver.complete_events(11)
                homeserver.add_invalidation(11, "ep1")
                homeserver.set_last_allocated("caches", 11)
                second = await take_until(server_items, lambda item: isinstance(item, Update))
        await reader.close()
        return [*first, *second]

    items = [item for item in asyncio.run(resume()) if isinstance(item, Gap | Update)]
    assert items[0] == Gap(stream, None, 10, 20, 0, WENT_BACK)
    assert [item.token for item in items[1:] if isinstance(item, Update)] == [11]
    assert progress.positions == {(stream, None): 11}


def follow_answers(
    homeserver: Database,
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    count: int,
    timing: ClientTiming = FAST_TIMING,
) -> list[Item]:
    """Return the first ``count`` items that the client receives from a server with the handler ``answer``."""

    async def scenario() -> list[Item]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1], Dialect.TOKENS, "synapse.example")
        progress, reader = Progress({("events", None): 1}), AsyncReader(homeserver.open_reader())
        server_items = follow_server(address, progress, reader, streams=["events"], timing=timing)
        results: list[Item] = []
        async with server, aclosing(server_items), asyncio.timeout(60):
            async for item in server_items:
                results.append(item)
                if len(results) == count:
                    break
        await reader.close()
        return results

    return asyncio.run(scenario())


def test_the_client_sends_its_name_and_pings(homeserver: Database) -> None:
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend([await reader.readline() for _ in range(6)])
        writer.write(b"SERVER synapse.example\nWHATEVER comes\n")

    assert follow_answers(homeserver, answer, 2)[1] == Unknown("WHATEVER", "comes")
    assert received[0] == b"NAME synapse-lakehouse\n"
    assert received[1].startswith(b"PING 1")
    assert received[2] == b"REPLICATE events 1\n"
    assert all(line.startswith(b"PING ") for line in received[3:])


def test_a_server_of_another_homeserver_is_refused(homeserver: Database) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SERVER other.example\nPOSITION events 5\n")

    with pytest.raises(WrongServerError, match=re.escape("other.example")):
        follow_answers(homeserver, answer, 2)


@pytest.mark.parametrize(
    ("rows", "open_seconds", "attempts"),
    [(b"", 0.0, [1, 2, 3]), (b"", 0.3, [1, 1, 1]), (b"RDATA events 2 [2]\n", 0.0, [1, 2, 3])],
)
def test_delays_grow_while_connections_bring_no_rows(
    homeserver: Database, rows: bytes, open_seconds: float, attempts: list[int]
) -> None:
    """Repeated rows do not count as success."""
    timing = CountingTiming(ping=0.1, silence=1.0, longest=0.2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SERVER synapse.example\nPOSITION events 2\n" + rows)
        await asyncio.sleep(open_seconds)
        writer.close()

    follow_answers(homeserver, answer, 7, timing)
    assert timing.attempts[:3] == attempts


@pytest.mark.parametrize(
    ("ending", "warning"),
    [
        (b"ERROR server stopping\n", "server stopping"),
        (b'RDATA events 2 ["half\n', "RDATA: "),
        (b"RDATA events 2 " + b"x" * (1 << 20) + b"\n", "1048576"),
        (b"PING 1\n", " 1 s"),
        (b"NAME me\n", "NAME: "),
    ],
)
def test_an_ended_connection_resumes_from_the_last_token(
    homeserver: Database, ending: bytes, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append([await reader.readline() for _ in range(3)][2])
        writer.write(b"SERVER synapse.example\nPOSITION events 1\n")
        if len(requests) == 1:
            writer.write(b"RDATA events batch [1]\n" + ending)
        else:
            writer.write(b"RDATA events batch [1]\nRDATA events 2 [2]\n")
        await reader.read()

    with caplog.at_level(logging.WARNING):
        items = follow_answers(homeserver, answer, 5 + ending.startswith(b"ERROR"))
    assert [item for item in items if isinstance(item, Update)] == [Update("events", None, 2, ([1], [2]))]
    assert Position("events", None, None, 1) in items
    assert requests == [b"REPLICATE events 1\n"] * 2
    assert warning in caplog.text
