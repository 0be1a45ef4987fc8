"""The tap writes received items, despite crashes and outages, and shows that it listens."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.replication.tap.follower import ClientTiming, Item
from synapse_lakehouse.replication.tap.iceberg_sink import Batch, IcebergSink, SinkWriteError
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, follow_server
from synapse_lakehouse.replication.tap.write_items import CommitPolicy, write_items
from synapse_lakehouse.replication.tap_liveness import read_last_commit_time, read_last_commit_time_by_duckdb
from tests.replication.commands_table import EP1, new_batch, read_commands
from tests.replication.database import CATALOGUE


class CrashError(Exception):
    """The process is gone."""


def test_each_token_is_written_once_despite_crashes(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    random, last = Random(7), 150
    append = IcebergSink.append

    def crashing(self: IcebergSink, batch: Batch) -> None:
        how = random.choice(["before", "after", "not", "not"])
        if how == "before":
            raise CrashError
        append(self, batch)
        if how == "after":
            raise CrashError

    async def items(progress: Progress) -> AsyncGenerator[Item, None]:
        progress.mark_disconnected()
        progress.is_connected = True
        for token in range(progress.positions.get(EP1, 1) + 1, last + 1):
            for number in range(token % 3, -1, -1):
                if update := progress.add_row(c.Rdata(*EP1, None if number else token, ["ev", [f"${token}"]])):
                    yield update
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    async def until_it_crashes() -> None:
        landing, stop = IcebergSink(catalog, "redis", Dialect.REDIS), asyncio.Event()
        progress = Progress(landing.read_positions())
        landing_it = asyncio.create_task(
            write_items(
                items(progress), progress, landing, new_batch, stop, CommitPolicy(rows=60, seconds=0.2, max_pending=90)
            )
        )
        while progress.positions.get(EP1) != last and not landing_it.done():
            await asyncio.sleep(0.01)
        stop.set()
        await landing_it

    monkeypatch.setattr(IcebergSink, "append", crashing)
    crashes = 0
    while IcebergSink(catalog, "redis", Dialect.REDIS).read_positions().get(EP1) != last:
        try:
            asyncio.run(until_it_crashes())
        except CrashError:
            crashes += 1
    assert crashes > 1
    rows = [(row["token"], row["ordinal"]) for row in read_commands(catalog, command="RDATA")]
    assert sorted(rows) == [(token, number) for token in range(2, last + 1) for number in range(token % 3 + 1)]


def test_a_tap_that_cannot_write_can_be_stopped(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = asyncio.Event()

    async def items(progress: Progress) -> AsyncGenerator[Item, None]:
        progress.is_connected = True
        update = progress.add_row(c.Rdata(*EP1, 2, ["ev", ["$2"]]))
        assert update
        yield update
        await asyncio.Event().wait()

    async def until_asked() -> None:
        landing = IcebergSink(catalog, "redis", Dialect.REDIS, stop_seconds=0.5)
        stop, progress = asyncio.Event(), Progress()
        loop = asyncio.get_running_loop()

        def failing(*arguments: Any, **options: Any) -> Any:
            loop.call_soon_threadsafe(tried.set)
            raise ConnectionError

        monkeypatch.setattr(type(catalog), "commit_table", failing)
        landing_it = asyncio.create_task(
            write_items(items(progress), progress, landing, new_batch, stop, CommitPolicy(seconds=0.1))
        )
        async with asyncio.timeout(30):
            await tried.wait()
            stop.set()
            await landing_it

    with pytest.raises(SinkWriteError):
        asyncio.run(until_asked())
    assert read_commands(catalog) == []


def test_a_quiet_tap_shows_a_sign_of_life(catalog: Catalog) -> None:
    async def quiet(progress: Progress) -> AsyncGenerator[Item, None]:
        await asyncio.Event().wait()
        yield c.Ping("")

    async def listen(seconds: float, *, is_connected: bool, reads: bool = True) -> None:
        landing, stop, progress = IcebergSink(catalog, "redis", Dialect.REDIS), asyncio.Event(), Progress()
        landing.read_positions()
        progress.is_connected = is_connected
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await write_items(
            quiet(progress), progress, landing, new_batch, stop, CommitPolicy(quiet=0.1), can_read=lambda: reads
        )

    asyncio.run(listen(0.6, is_connected=False))
    asyncio.run(listen(0.6, is_connected=True, reads=False))
    assert read_last_commit_time(catalog) is None
    asyncio.run(listen(1.5, is_connected=True))
    assert read_commands(catalog, command="TAP")
    now = datetime.now(UTC)
    actual = read_last_commit_time(catalog)
    assert actual
    assert now - timedelta(seconds=5) < actual <= now
    # Its snapshots are given up, its rows stay.
    table = catalog.load_table(COMMANDS_TABLE)
    table.append(tables.COMMANDS_SCHEMA.empty_table())
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    again = read_last_commit_time(catalog)
    assert again
    assert abs(actual - again) < timedelta(seconds=5)


def test_a_refused_tap_shows_no_sign_of_life(new_lake: Callable[..., Settings]) -> None:
    """Also where what it landed while it was items is known by its rows alone."""
    settings = new_lake()
    catalog = open_catalog(settings)
    greeting = b"SERVER synapse.example\nPOSITION events 5\n"

    async def follow_who_says(words: bytes) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(words)
            await reader.read() if words == greeting else writer.close()

        landing, stop = IcebergSink(catalog, "tcp", Dialect.TOKENS), asyncio.Event()
        progress = Progress(landing.read_positions())
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1], Dialect.TOKENS, "synapse.example")
        reader, timing = AsyncReader(DatabaseReader(settings, CATALOGUE)), ClientTiming(first=0.1, longest=0.1)
        received = follow_server(address, progress, reader, streams=["events"], timing=timing)
        asyncio.get_running_loop().call_later(1.5, stop.set)
        async with server:
            await write_items(
                received, progress, landing, lambda: Batch(RowRedactor(CATALOGUE), "tcp", Dialect.TOKENS), stop,
                CommitPolicy(seconds=0.3, quiet=0.3),
            )  # fmt: skip
        await reader.close()

    def last() -> set[datetime | None]:
        with duckdb_reader.open_duckdb(settings) as connection:
            return {read_last_commit_time(catalog), read_last_commit_time_by_duckdb(connection, settings)}

    asyncio.run(follow_who_says(b"ERROR too many connections\n"))
    assert last() == {read_commands(catalog, command="ERROR")[0]["received_at"]}
    asyncio.run(follow_who_says(greeting))
    (listened,) = last()
    assert listened
    count = len(read_commands(catalog))
    asyncio.run(follow_who_says(greeting + b"ERROR there is no such stream\n"))
    assert len(read_commands(catalog)) > count
    assert last() == {listened}
    table = catalog.load_table(COMMANDS_TABLE)
    listening = [
        snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.timestamp_ms <= listened.timestamp() * 1000
    ]
    table.maintenance.expire_snapshots().by_ids(listening).commit()
    (committed,) = last()
    assert committed
    assert abs(listened - committed) < timedelta(seconds=5)
    assert IcebergSink(catalog, "tcp", Dialect.TOKENS).read_positions() == {("events", None): 5}
