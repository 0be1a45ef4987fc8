"""What is heard, landed in a real Iceberg table."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.decode import parse_line
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Progress
from synapse_lakehouse.replication.tap.follower import ClientTiming, Item, process_command
from synapse_lakehouse.replication.tap.iceberg_sink import (
    Batch,
    IcebergSink,
    MonotonicClock,
    SinkWriteError,
    TapRunningError,
)
from synapse_lakehouse.replication.tap.redact_fields import WITHHELD_KEY, RowRedactor, hash_json
from synapse_lakehouse.replication.tap.tap import CommitPolicy, write_items
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, follow_server
from synapse_lakehouse.replication.tap_liveness import read_last_commit_time, read_last_commit_time_by_duckdb
from tests.replication.database import KNOWN

EP1 = ("events", "ep1")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog of its own, in a file."""
    return load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")


def new_batch() -> Batch:
    return Batch(RowRedactor(KNOWN), "redis", Dialect.REDIS)


def landed(catalog: Catalog, **wanted: str) -> list[dict[str, Any]]:
    rows = catalog.load_table(COMMANDS_TABLE).scan().to_arrow().sort_by("received_at").to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize(
    ("stream", "row", "stored"),
    [
        ("events", ["ev", ["$a", "!r", "m.x", None, None, "$b", None, False, False]], ...),
        ("events", ["state", ["!r", "m.x", "", "$a"]], ...),
        ("events", ["state-all", ["!r"]], ...),
        ("events", ["future", ["secret"]], None),
        ("presence", ["@a", "offline", 86400001, 5, 172800000, "at the doctor's", True],
         ["@a", "offline", 86400000, 0, 172800000, None, True]),
        ("receipts", ["!r", "m.read", "@a", "$a", "main", {"ts": 5, "more": "secret"}],
         ["!r", "m.read", "@a", "$a", "main", {"ts": 5}]),
        ("pushers", ["@a", "app", "secret", False], ["@a", "app", None, False]),
        ("device_lists", ["@a", False, True], ...),
        ("account_data", ["@a", "!r", "m.tag"], ...),
        ("to_device", ["@a"], [None]),
        ("typing", ["!r", ["@a"]], None),
        ("push_rules", ["@a", "more than is known"], ["@a"]),
        ("caches", ["get_user_by_id", ["@a"], 5], ["get_user_by_id", hash_json(["@a"]), 5]),
        ("caches", ["get_user_by_id", None, 5], ...),
        ("caches", ["get_monthly_active_count", [], 5], ["get_monthly_active_count", hash_json([]), 5]),
        ("caches", ["get_user_by_access_token", [None], 5], ["get_user_by_access_token", WITHHELD_KEY, 5]),
        ("caches", "odd", None),
        ("unheard_of", ["secret"], None),
    ],
)  # fmt: skip
def test_rows_retain_the_listed_fields(stream: str, row: Any, stored: Any) -> None:
    assert RowRedactor(KNOWN).redact(stream, row) == (row if stored is ... else stored)


def test_each_command_fills_its_columns(catalog: Catalog) -> None:
    landing, progress = IcebergSink(catalog, "redis", Dialect.REDIS), Progress()
    batch = new_batch()
    for command in (c.Rdata(*EP1, None, ["ev", ["$a"]]), c.Rdata(*EP1, 5, ["ev", ["$b"]])):
        if update := progress.add_row(command):
            batch.add(update)
    batch.add(c.Position(*EP1, 5, 7))
    batch.add(Gap(*EP1, 7, 9, 1, "because"))
    batch.add(c.LockReleased("ep1", "lock", "!r"))
    batch.add(c.Unknown("USER_IP", "@a secret"))
    batch.add_positions(progress.positions)
    landing.append(batch)
    rows = landed(catalog)
    named = ("command", "stream", "instance", "token", "ordinal", "previous", "row")
    assert [tuple(row[name] for name in named) for row in rows[:4]] == [
        ("RDATA", *EP1, 5, 0, None, '["ev",["$a"]]'),
        ("RDATA", *EP1, 5, 1, None, '["ev",["$b"]]'),
        ("POSITION", *EP1, 7, None, 5, None),
        ("GAP", *EP1, 9, None, 7, None),
    ]
    assert json.loads(rows[4]["fields"]) == {"instance": "ep1", "name": "lock", "key": hash_json("!r")}
    assert "secret" not in json.dumps(rows, default=str)
    assert landing.read_positions() == {EP1: 5}
    assert IcebergSink(catalog, "tcp", Dialect.TOKENS).read_positions() == {}


def test_lone_surrogates_are_replaced(catalog: Catalog) -> None:
    batch = new_batch()
    for line in (b'RDATA push_rules ep1 5 ["@\\ud800:x \\ud83d\\ude00"]', b'LOCK_RELEASED ["\\udfff","lock","key"]'):
        command = parse_line(line, Dialect.REDIS)
        heard = Progress().add_row(command) if isinstance(command, c.Rdata) else command
        assert heard
        batch.add(heard)
    IcebergSink(catalog, "redis", Dialect.REDIS).append(batch)
    pushed, released = landed(catalog)
    assert json.loads(pushed["row"]) == ["@\N{REPLACEMENT CHARACTER}:x \N{GRINNING FACE}"]
    assert json.loads(released["fields"])["instance"] == "\N{REPLACEMENT CHARACTER}"


def test_rows_stay_in_order_if_the_clock_is_set_back(catalog: Catalog) -> None:
    for token, hours_back in ((7, 0), (9, 1)):
        clock = MonotonicClock(iter([time.time() - 3600 * hours_back]).__next__)
        landing = IcebergSink(catalog, "redis", Dialect.REDIS, clock=clock)
        landing.read_positions()
        batch = Batch(RowRedactor(KNOWN), "redis", Dialect.REDIS, clock)
        batch.add_positions({EP1: token})
        landing.append(batch)
    assert IcebergSink(catalog, "redis", Dialect.REDIS).read_positions() == {EP1: 9}


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

    async def heard(progress: Progress) -> AsyncGenerator[Item, None]:
        progress.mark_disconnected()
        for token in range(progress.positions.get(EP1, 1) + 1, last + 1):
            for number in range(token % 3, -1, -1):
                async for item in process_command(
                    c.Rdata(*EP1, None if number else token, ["ev", [f"${token}"]]), progress, None
                ):
                    yield item
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    async def until_it_crashes() -> None:
        landing, stop = IcebergSink(catalog, "redis", Dialect.REDIS), asyncio.Event()
        progress = Progress(landing.read_positions())
        landing_it = asyncio.create_task(
            write_items(
                heard(progress), progress, landing, new_batch, stop, CommitPolicy(rows=60, seconds=0.2, max_pending=90)
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
    rows = [(row["token"], row["ordinal"]) for row in landed(catalog, command="RDATA")]
    assert sorted(rows) == [(token, number) for token in range(2, last + 1) for number in range(token % 3 + 1)]


def test_a_commit_with_a_lost_answer_is_not_repeated(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = IcebergSink(catalog, "redis", Dialect.REDIS, retry_seconds=0.0)
    batch, fails = new_batch(), ["after", "before"]
    batch.add(c.Position(*EP1, 5, 7))
    commit = type(catalog).commit_table

    def losing(*given: Any, **named: Any) -> Any:
        how = fails.pop() if fails else None
        if how == "before":
            raise ConnectionError
        answer = commit(*given, **named)
        if how == "after":
            raise ConnectionError
        return answer

    monkeypatch.setattr(type(catalog), "commit_table", losing)
    landing.append(batch)
    assert [row["command"] for row in landed(catalog)] == ["POSITION"]
    assert not fails


def test_a_tap_that_cannot_write_can_be_stopped(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = asyncio.Event()

    async def heard(progress: Progress) -> AsyncGenerator[Item, None]:
        async for item in process_command(c.Rdata(*EP1, 2, ["ev", ["$2"]]), progress, None):
            yield item
        await asyncio.Event().wait()

    async def until_asked() -> None:
        landing = IcebergSink(catalog, "redis", Dialect.REDIS, stop_seconds=0.5)
        stop, progress = asyncio.Event(), Progress()
        loop = asyncio.get_running_loop()

        def failing(*given: Any, **named: Any) -> Any:
            loop.call_soon_threadsafe(tried.set)
            raise ConnectionError

        monkeypatch.setattr(type(catalog), "commit_table", failing)
        landing_it = asyncio.create_task(
            write_items(heard(progress), progress, landing, new_batch, stop, CommitPolicy(seconds=0.1))
        )
        async with asyncio.timeout(30):
            await tried.wait()
            stop.set()
            await landing_it

    with pytest.raises(SinkWriteError):
        asyncio.run(until_asked())
    assert landed(catalog) == []


def test_the_later_of_two_taps_stops(catalog: Catalog) -> None:
    def landing(dialect: Dialect = Dialect.REDIS) -> IcebergSink:
        one = IcebergSink(catalog, "redis", dialect)
        one.read_positions()
        return one

    def batch() -> Batch:
        heard = new_batch()
        heard.add(c.Position(*EP1, 5, 7))
        heard.add_positions({EP1: 7})
        return heard

    first, second, other = landing(), landing(), landing(Dialect.TOKENS)
    first.append(batch())
    other.append(batch())
    with pytest.raises(TapRunningError):
        second.append(batch())
    first.append(batch())
    successor = landing()
    successor.append(batch())
    with pytest.raises(TapRunningError):
        first.append(batch())
    assert len(landed(catalog, command="TAP")) == 4


def test_a_tap_stops_if_another_one_commits_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (IcebergSink(catalog, "redis", Dialect.REDIS, retry_seconds=0.0) for _ in range(2))
    batches = [new_batch(), new_batch()]
    for landing, batch in zip((first, second), batches, strict=True):
        landing.read_positions()
        batch.add(c.Position(*EP1, 5, 7))
        batch.add_positions({EP1: 7})
    commit = type(catalog).commit_table

    def overtaken(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(type(catalog), "commit_table", commit)
        second.append(batches[1])
        return commit(*given, **named)

    monkeypatch.setattr(type(catalog), "commit_table", overtaken)
    with pytest.raises(TapRunningError):
        first.append(batches[0])
    assert len(landed(catalog, command="POSITION")) == 1


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
    assert landed(catalog, command="TAP")
    now = datetime.now(UTC)
    found = read_last_commit_time(catalog)
    assert found
    assert now - timedelta(seconds=5) < found <= now
    # Its snapshots are given up, its rows stay.
    table = catalog.load_table(COMMANDS_TABLE)
    table.append(tables.COMMANDS_SCHEMA.empty_table())
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    again = read_last_commit_time(catalog)
    assert again
    assert abs(found - again) < timedelta(seconds=5)


def test_a_refused_tap_shows_no_sign_of_life(new_lake: Callable[..., Settings]) -> None:
    """Also where what it landed while it was heard is known by its rows alone."""
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
        heard = follow_server(address, progress, streams=["events"], timing=ClientTiming(first=0.1, longest=0.1))
        asyncio.get_running_loop().call_later(1.5, stop.set)
        async with server:
            await write_items(
                heard, progress, landing, lambda: Batch(RowRedactor(KNOWN), "tcp", Dialect.TOKENS), stop,
                CommitPolicy(seconds=0.3, quiet=0.3),
            )  # fmt: skip

    def last() -> set[datetime | None]:
        with duckdb_reader.open_duckdb(settings) as connection:
            return {read_last_commit_time(catalog), read_last_commit_time_by_duckdb(connection, settings)}

    asyncio.run(follow_who_says(b"ERROR too many connections\n"))
    assert last() == {landed(catalog, command="ERROR")[0]["received_at"]}
    asyncio.run(follow_who_says(greeting))
    (listened,) = last()
    assert listened
    count = len(landed(catalog))
    asyncio.run(follow_who_says(greeting + b"ERROR there is no such stream\n"))
    assert len(landed(catalog)) > count
    assert last() == {listened}
    table = catalog.load_table(COMMANDS_TABLE)
    listening = [one.snapshot_id for one in table.snapshots() if one.timestamp_ms <= listened.timestamp() * 1000]
    table.maintenance.expire_snapshots().by_ids(listening).commit()
    (known,) = last()
    assert known
    assert abs(listened - known) < timedelta(seconds=5)
    assert IcebergSink(catalog, "tcp", Dialect.TOKENS).read_positions() == {("events", None): 5}
