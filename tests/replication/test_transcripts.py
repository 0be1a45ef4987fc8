"""The client and the server follow the conversations in the documents of Synapse's TCP replication, line for line.

The server sends lines that begin with ``>``, the client sends the others. Only the time of a PING is not compared.
"""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing

import pytest

from synapse_lakehouse.replication.protocol.commands import Position
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Progress, Update
from synapse_lakehouse.replication.server.async_reader import INCOMPLETE, AsyncReader
from synapse_lakehouse.replication.tap.follower import ClientTiming, Item
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, follow_server
from tests.replication.conversation import SECONDS, connect, run_server
from tests.replication.database import Database

REGISTERED = '["get_user_by_id",["@01register-user:localhost:8823"],1490197670513]'
GUEST_ACCESS = (
    '["$149019767112vOHxz:localhost:8823","!AFDCvgApUmpdfVjIXm:localhost:8823","m.room.guest_access","",null]'
)
BATCHED = [f'["get_user_by_id",["@test{number}:localhost:8823"],1490197670513]' for number in ("", "2", "3", "4")]

CONVERSATIONS = {
    Dialect.TOKENS: f"""
> SERVER localhost:8823
> PING 1490197665618
< NAME synapse.app.appservice
< PING 1490197665618
< REPLICATE events 1
< REPLICATE backfill 1
< REPLICATE caches 1
> POSITION events 1
> POSITION backfill 1
> POSITION caches 1
> RDATA caches 2 {REGISTERED}
> RDATA events 14 {GUEST_ACCESS}
< PING 1490197675618
> ERROR server stopping
""",
    Dialect.INSTANCES: f"""
> SERVER localhost:8823
> PING 1490197665618
< NAME synapse.app.appservice
< PING 1490197665618
< REPLICATE
> POSITION events master 1 1
> POSITION backfill master 1 1
> POSITION caches master 1 1
> RDATA caches master 2 {REGISTERED}
> RDATA events master 14 {GUEST_ACCESS}
< PING 1490197675618
> ERROR server stopping
""",
}

SERVED_ROWS = {
    GUEST_ACCESS: '["ev",["$149019767112vOHxz:localhost:8823","!AFDCvgApUmpdfVjIXm:localhost:8823",'
    '"m.room.guest_access","",null,null,null,false,false]]'
}
"""Served rows by documented row: Synapse has since added a tag and fields to rows of events."""


def read_script(dialect: Dialect) -> list[tuple[str, str]]:
    return [(line[0], line[2:]) for line in CONVERSATIONS[dialect].strip().splitlines()]


def without_time(line: str | None) -> str:
    return re.sub(r"^PING \d{13}$", "PING", line or "the end")


def follow_script(
    homeserver: Database, dialect: Dialect, script: list[tuple[str, str]], streams: list[str], count: int
) -> list[Item]:
    """Return the first ``count`` items of a client that is connected to the script's server.

    The client must send the lines of the script. The database has no rows of the tokens, so a gap follows each writer's
    first token; gaps do not count.
    """
    ended = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for side, line in script:
            if side == ">":
                writer.write(line.encode() + b"\n")
            else:
                output.append(without_time((await reader.readline()).decode().strip()))
        ended.set()
        writer.close()

    output: list[str] = []
    progress = Progress({(stream, None): 1 for stream in streams})

    async def scenario() -> list[Item]:
        results: list[Item] = []
        server = await asyncio.start_server(play, "127.0.0.1", 0)
        address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1], dialect, "localhost:8823")
        reader, timing = AsyncReader(homeserver.open_reader()), ClientTiming(ping=0.2)
        client_items = follow_server(
            address, progress, reader, streams=streams, name="synapse.app.appservice", timing=timing
        )
        async with server, aclosing(client_items) as items, asyncio.timeout(SECONDS):
            async for item in items:
                if isinstance(item, Gap):
                    assert item.cause.startswith(INCOMPLETE)
                else:
                    results.append(item)
                if len(results) == count:
                    break
            await ended.wait()
        await reader.close()
        return results

    items = asyncio.run(scenario())
    assert output == [without_time(line) for side, line in script if side == "<"]
    return items


@pytest.mark.parametrize("dialect", list(CONVERSATIONS))
def test_the_client_follows_the_documented_examples(homeserver: Database, dialect: Dialect) -> None:
    instance = None if dialect is Dialect.TOKENS else "master"
    streams = ["events", "backfill", "caches"]
    _, *positions, caches, events = follow_script(homeserver, dialect, read_script(dialect), streams, 6)
    assert [position.stream for position in positions if isinstance(position, Position)] == [
        "events", "backfill", "caches",
    ]  # fmt: skip
    key = ["@01register-user:localhost:8823"]
    assert caches == Update("caches", instance, 2, (["get_user_by_id", key, 1490197670513],))
    assert isinstance(events, Update)
    assert (events.token, events.rows[0][2]) == (14, "m.room.guest_access")


@pytest.mark.parametrize("dialect", list(CONVERSATIONS))
def test_the_client_decodes_the_documented_batch(homeserver: Database, dialect: Dialect) -> None:
    source = "caches" if dialect is Dialect.TOKENS else "caches master"
    batch_rows = [*(("batch", row) for row in BATCHED[:3]), ("54", BATCHED[3])]
    whole_cache_row = '["get_user_by_id", null, 1550574873252]'
    script = [
        *read_script(dialect)[:2],
        *((">", f"RDATA {source} {token} {row}") for token, row in batch_rows),
        (">", f"RDATA {source} 550953772 {whole_cache_row}"),
    ]
    _, batch_update, whole_cache_update = follow_script(homeserver, dialect, script, [], 3)
    assert isinstance(batch_update, Update)
    assert (batch_update.token, len(batch_update.rows)) == (54, 4)
    assert isinstance(whole_cache_update, Update)
    assert (whole_cache_update.token, whole_cache_update.rows) == (
        550953772,
        (["get_user_by_id", None, 1550574873252],),
    )


@pytest.mark.parametrize("dialect", list(CONVERSATIONS))
def test_the_server_follows_the_documented_examples(homeserver: Database, dialect: Dialect) -> None:
    source = Database(homeserver.settings.model_copy(update={"lakehouse_stream_writers": "events:master"}))

    def register() -> None:
        cache, keys, at = json.loads(REGISTERED)
        homeserver.add_invalidation(2, "master", cache, keys, at)
        homeserver.set_last_allocated("caches", 2)

    def allow_guests() -> None:
        homeserver.execute(
            "insert into events (event_id, room_id, type, sender, stream_ordering, topological_ordering, depth,"
            " outlier, processed, instance_name) values ('$149019767112vOHxz:localhost:8823',"
            " '!AFDCvgApUmpdfVjIXm:localhost:8823', 'm.room.guest_access', '@a', 14, 1, 1, false, true, 'master')"
        )
        homeserver.execute(
            "insert into state_events (event_id, room_id, type, state_key) values ('$149019767112vOHxz:localhost:8823',"
            " '!AFDCvgApUmpdfVjIXm:localhost:8823', 'm.room.guest_access', '') on conflict do nothing"
        )
        homeserver.set_last_allocated("events", 14)
        homeserver.set_position("events", "master", 14)

    actions: dict[str, Callable[[], None]] = {REGISTERED: register, GUEST_ACCESS: allow_guests}

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(AsyncExitStack())
            port = await server.enter_async_context(run_server(source.open_reader(), dialect, "localhost:8823"))
            positions = set[str]()
            conversation = await stack.enter_async_context(connect(port))
            for side, line in read_script(dialect):
                *_, row = line.split(" ", 3 if dialect is Dialect.TOKENS else 4)
                if side == "<":
                    conversation.send(line)
                    continue
                if row in actions:
                    await asyncio.to_thread(actions[row])
                if line.startswith("ERROR"):
                    await server.aclose()
                expected = without_time(line.replace(row, SERVED_ROWS.get(row, row)))
                # Synapse has added streams since the documents were written, and our server sorts them.
                while expected not in positions:
                    received = without_time(await conversation.receive())
                    if not received.startswith("POSITION"):
                        assert received == expected
                        break
                    positions.add(received)
            assert await conversation.receive() is None

    with source:
        asyncio.run(scenario())
