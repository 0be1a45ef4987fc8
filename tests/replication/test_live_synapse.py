"""A real Synapse with workers, heard on Redis and served from its database while people talk and connections break."""

import asyncio
import itertools
import threading
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from sample.homeserver import Synapse, homeserver
from synapse_lakehouse.replication.client import Address, follow
from synapse_lakehouse.replication.grammar import Dialect
from synapse_lakehouse.replication.pubsub import CLIENT_NAME, listen
from synapse_lakehouse.replication.reading import Reader
from synapse_lakehouse.replication.updates import Gap, Progress, Update
from synapse_lakehouse.settings import Settings
from tests.replication.conversation import serving
from tests.replication.database import KNOWN, Database

pytestmark = pytest.mark.heavy

SECONDS = 60
STREAMS = sorted({stream.name for stream in KNOWN.streams} - {"caches"})


def test_every_row_is_heard_or_served_once(tmp_path: Path) -> None:
    with homeserver(tmp_path / "synapse") as hs:
        given = {"synapse_dsn": hs.dsn, "synapse_server_name": hs.server_name, "synapse_config": hs.config_path}
        database = Database(Settings(_env_file=None, lakehouse_home=tmp_path, **given))
        heard, served = asyncio.run(_follow(hs, database))
        rows = {stream: _tokens(database, stream) for stream in STREAMS}
        bounds = database.feed().heads().linear
    for stream in STREAMS:
        assert {token for _, token in rows[stream] if token <= bounds[stream]} - served[stream].keys() == set(), stream
        named = {(writer, token) for writer, token in rows[stream] if writer}
        assert named - heard[stream].keys() == set(), stream
        assert {token for _, token in rows[stream]} - {token for _, token in heard[stream]} == set(), stream
        assert set(heard[stream].values()) <= {1}, stream
        assert set(served[stream].values()) <= {1}, stream
    assert len(rows["events"]) > 200


def _tokens(database: Database, stream: str) -> set[tuple[str | None, int]]:
    """Writers, where rows name them, and tokens of the rows that are there now."""
    sign = -1 if KNOWN.stream(stream).sign == "negative" else 1
    return {
        (writer, token)
        for table, column in KNOWN.backing(stream)
        for writer, token in database.do(
            f"select instance_name, {sign} * {column} from {table.name} where {sign} * {column} > 0"
        )
    }


async def _follow(hs: Synapse, database: Database) -> tuple[dict[str, dict[Any, int]], dict[str, dict[int, int]]]:
    """How often each (writer, token) was heard on Redis, and each token served, from the first on, by stream."""
    heard: dict[str, dict[Any, int]] = {stream: {} for stream in STREAMS}
    served: dict[str, dict[int, int]] = {stream: {} for stream in STREAMS}
    writers = ("master", *hs.urls)
    heard_up_to = Progress({(stream, writer): 1 for stream in STREAMS for writer in writers})
    served_up_to = Progress(dict.fromkeys(((stream, None) for stream in STREAMS), 1))
    reader = Reader(database.feed())
    gaps: list[Gap] = []

    async def hear() -> None:
        url = f"redis://127.0.0.1:{hs.redis_port}"
        async with aclosing(listen(url, hs.server_name, heard_up_to, reader)) as items:
            async for item in items:
                if isinstance(item, Gap):
                    gaps.append(item)
                if isinstance(item, Update) and item.stream in heard:
                    tokens = heard[item.stream]
                    tokens[item.instance, item.token] = tokens.get((item.instance, item.token), 0) + 1

    async def be_served(port: int) -> None:
        address = Address("127.0.0.1", port, Dialect.TOKENS, hs.server_name)
        async with aclosing(follow(address, served_up_to, streams=STREAMS)) as items:
            async for item in items:
                if isinstance(item, Update):
                    served[item.stream][item.token] = served[item.stream].get(item.token, 0) + 1

    quiet = threading.Event()
    async with serving(database.feed(), Dialect.TOKENS, name=hs.server_name) as port:
        tasks = [asyncio.create_task(hear()), asyncio.create_task(be_served(port))]
        talking = asyncio.create_task(asyncio.to_thread(_talk, hs, quiet))
        client = Redis(port=hs.redis_port)
        for _ in range(SECONDS // 6):
            await asyncio.sleep(6)
            for one in client.client_list(_type="pubsub"):
                if one["name"] == CLIENT_NAME:
                    client.client_kill_filter(_id=one["id"])
        quiet.set()
        await talking
        await asyncio.sleep(15)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    await reader.close()
    assert any(gap.found for gap in gaps)
    return heard, served


def _talk(hs: Synapse, quiet: threading.Event) -> None:
    """Rooms, messages through every process, and a little of most other streams."""
    alice, bob = hs.register("alice", admin=True), hs.register("bob")
    for number in itertools.count():
        if quiet.is_set():
            return
        room = alice.create_room(preset="public_chat")
        bob.join(room)
        said = [alice.say(room, f"message {number}", via=process) for process in hs.urls]
        bob.receipt(room, said[-1])
        bob.set_account_data(f"test.{number % 3}", {"n": number})
        bob.set_display_name(f"Bob {number}")
