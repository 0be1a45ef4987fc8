"""The tap writes received items, despite crashes and outages, and shows that it is connected."""

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
    """Stands for a crash of the process."""


def test_each_token_is_written_once_despite_crashes(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    random, last = Random(7), 150
    append = IcebergSink.append

    def append_or_crash(self: IcebergSink, batch: Batch) -> None:
        crash_point = random.choice(["before", "after", "not", "not"])
        if crash_point == "before":
            raise CrashError
        append(self, batch)
        if crash_point == "after":
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

    async def run_until_crash() -> None:
        sink, stop = IcebergSink(catalog, "redis", Dialect.REDIS), asyncio.Event()
        progress = Progress(sink.read_positions())
        write_task = asyncio.create_task(
            write_items(
                items(progress), progress, sink, new_batch, stop, CommitPolicy(rows=60, seconds=0.2, max_pending=90)
            )
        )
        while progress.positions.get(EP1) != last and not write_task.done():
            await asyncio.sleep(0.01)
        stop.set()
        await write_task

    monkeypatch.setattr(IcebergSink, "append", append_or_crash)
    crashes = 0
    while IcebergSink(catalog, "redis", Dialect.REDIS).read_positions().get(EP1) != last:
        try:
            asyncio.run(run_until_crash())
        except CrashError:
            crashes += 1
    assert crashes > 1
    rows = [(row["token"], row["ordinal"]) for row in read_commands(catalog, command="RDATA")]
    assert sorted(rows) == [(token, number) for token in range(2, last + 1) for number in range(token % 3 + 1)]


def test_a_tap_that_cannot_write_can_be_stopped(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_tried = asyncio.Event()

    async def items(progress: Progress) -> AsyncGenerator[Item, None]:
        progress.is_connected = True
        update = progress.add_row(c.Rdata(*EP1, 2, ["ev", ["$2"]]))
        assert update
        yield update
        await asyncio.Event().wait()

    async def run_until_stopped() -> None:
        sink = IcebergSink(catalog, "redis", Dialect.REDIS, stop_seconds=0.5)
        stop, progress = asyncio.Event(), Progress()
        loop = asyncio.get_running_loop()

        def fail_commit(*arguments: Any, **options: Any) -> Any:
            loop.call_soon_threadsafe(commit_tried.set)
            raise ConnectionError

        monkeypatch.setattr(type(catalog), "commit_table", fail_commit)
        write_task = asyncio.create_task(
            write_items(items(progress), progress, sink, new_batch, stop, CommitPolicy(seconds=0.1))
        )
        async with asyncio.timeout(30):
            await commit_tried.wait()
            stop.set()
            await write_task

    with pytest.raises(SinkWriteError):
        asyncio.run(run_until_stopped())
    assert read_commands(catalog) == []


def test_a_quiet_tap_shows_that_it_runs(catalog: Catalog) -> None:
    async def yield_nothing(progress: Progress) -> AsyncGenerator[Item, None]:
        await asyncio.Event().wait()
        yield c.Ping("")

    async def run_tap(seconds: float, *, is_connected: bool, reads: bool = True) -> None:
        sink, stop, progress = IcebergSink(catalog, "redis", Dialect.REDIS), asyncio.Event(), Progress()
        sink.read_positions()
        progress.is_connected = is_connected
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await write_items(
            yield_nothing(progress), progress, sink, new_batch, stop, CommitPolicy(quiet=0.1), can_read=lambda: reads
        )

    asyncio.run(run_tap(0.6, is_connected=False))
    asyncio.run(run_tap(0.6, is_connected=True, reads=False))
    assert read_last_commit_time(catalog) is None
    asyncio.run(run_tap(1.5, is_connected=True))
    assert read_commands(catalog, command="TAP")
    now = datetime.now(UTC)
    commit_time = read_last_commit_time(catalog)
    assert commit_time
    assert now - timedelta(seconds=5) < commit_time <= now
    # Expire its Iceberg snapshots; its rows remain.
    table = catalog.load_table(COMMANDS_TABLE)
    table.append(tables.COMMANDS_SCHEMA.empty_table())
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    commit_time_after_expiry = read_last_commit_time(catalog)
    assert commit_time_after_expiry
    assert abs(commit_time - commit_time_after_expiry) < timedelta(seconds=5)


def test_a_refused_tap_does_not_count_as_running(new_lake: Callable[..., Settings]) -> None:
    """This also holds when only rows show its last commit, because its Iceberg snapshots are expired."""
    settings = new_lake()
    catalog = open_catalog(settings)
    greeting = b"SERVER synapse.example\nPOSITION events 5\n"

    async def follow_server_that_sends(data: bytes) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(data)
            await reader.read() if data == greeting else writer.close()

        sink, stop = IcebergSink(catalog, "tcp", Dialect.TOKENS), asyncio.Event()
        progress = Progress(sink.read_positions())
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1], Dialect.TOKENS, "synapse.example")
        reader, timing = AsyncReader(DatabaseReader(settings, CATALOGUE)), ClientTiming(first=0.1, longest=0.1)
        received = follow_server(address, progress, reader, streams=["events"], timing=timing)
        asyncio.get_running_loop().call_later(1.5, stop.set)
        async with server:
            await write_items(
                received, progress, sink, lambda: Batch(RowRedactor(CATALOGUE), "tcp", Dialect.TOKENS), stop,
                CommitPolicy(seconds=0.3, quiet=0.3),
            )  # fmt: skip
        await reader.close()

    def read_last_times() -> set[datetime | None]:
        with duckdb_reader.open_duckdb(settings) as connection:
            return {read_last_commit_time(catalog), read_last_commit_time_by_duckdb(connection, settings)}

    asyncio.run(follow_server_that_sends(b"ERROR too many connections\n"))
    assert read_last_times() == {read_commands(catalog, command="ERROR")[0]["received_at"]}
    asyncio.run(follow_server_that_sends(greeting))
    (connected_time,) = read_last_times()
    assert connected_time
    count = len(read_commands(catalog))
    asyncio.run(follow_server_that_sends(greeting + b"ERROR there is no such stream\n"))
    assert len(read_commands(catalog)) > count
    assert read_last_times() == {connected_time}
    table = catalog.load_table(COMMANDS_TABLE)
    snapshot_ids = [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if snapshot.timestamp_ms <= connected_time.timestamp() * 1000
    ]
    table.maintenance.expire_snapshots().by_ids(snapshot_ids).commit()
    (time_from_rows,) = read_last_times()
    assert time_from_rows
    assert abs(connected_time - time_from_rows) < timedelta(seconds=5)
    assert IcebergSink(catalog, "tcp", Dialect.TOKENS).read_positions() == {("events", None): 5}
