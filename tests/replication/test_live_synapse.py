"""All rows of a Synapse with workers arrive from Redis and from the server while connections break."""

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, aclosing, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from redis import Redis

from bench.tap import run_tap
from sample.client import MatrixError
from sample.homeserver import Synapse, homeserver
from sample.redis import redis
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.replication.coverage.measure_coverage import prepare_comparison
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Progress, Update
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.tap.redis_client import CLIENT_NAME, follow_redis
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, follow_server
from synapse_lakehouse.spark_app import SparkApp
from tests.replication.conversation import run_server
from tests.replication.database import CATALOGUE, Database
from tests.support.incremental_lake import open_incremental_lake

pytestmark = pytest.mark.heavy

SECONDS = 60
STREAMS = sorted({stream.name for stream in CATALOGUE.streams} - {"caches"})


def test_every_row_is_received_or_served_once(tmp_path: Path) -> None:
    with homeserver(tmp_path / "synapse") as hs:
        settings = Settings(
            _env_file=None, lakehouse_home=tmp_path, synapse_dsn=hs.dsn, synapse_server_name=hs.server_name,
            synapse_config=hs.config_path,
        )  # fmt: skip
        with Database(settings) as database:
            received, served = asyncio.run(_follow(hs, database))
            rows = {stream: _tokens(database, stream) for stream in STREAMS}
            bounds = database.open_reader().read_positions().by_stream
    for stream in STREAMS:
        assert {token for _, token in rows[stream] if token <= bounds[stream]} - served[stream].keys() == set(), stream
        tokens = {(writer, token) for writer, token in rows[stream] if writer}
        assert tokens - received[stream].keys() == set(), stream
        assert {token for _, token in rows[stream]} - {token for _, token in received[stream]} == set(), stream
        assert set(received[stream].values()) <= {1}, stream
        assert set(served[stream].values()) <= {1}, stream
    assert len(rows["events"]) > 200


def _tokens(database: Database, stream: str) -> set[tuple[str | None, int]]:
    """Return the writer and token of each current row; the writer is None where rows name none."""
    sign = -1 if CATALOGUE.stream(stream).sign == "negative" else 1
    return {
        (writer, token)
        for table, column in CATALOGUE.backing_tables(stream)
        for writer, token in database.execute(
            f"select instance_name, {sign} * {column} from {table.name} where {sign} * {column} > 0"
        )
    }


async def _follow(hs: Synapse, database: Database) -> tuple[dict[str, dict[Any, int]], dict[str, dict[int, int]]]:
    """Return by stream how often each (writer, token) arrived from Redis, and how often each token was served."""
    received_counts: dict[str, dict[Any, int]] = {stream: {} for stream in STREAMS}
    served_counts: dict[str, dict[int, int]] = {stream: {} for stream in STREAMS}
    writers = ("master", *hs.urls)
    redis_progress = Progress({(stream, writer): 1 for stream in STREAMS for writer in writers})
    server_progress = Progress(dict.fromkeys(((stream, None) for stream in STREAMS), 1))
    reader = AsyncReader(database.open_reader())
    gaps: list[Gap] = []

    async def receive_from_redis() -> None:
        url = f"redis://127.0.0.1:{hs.redis_port}"
        async with aclosing(follow_redis(url, hs.server_name, redis_progress, reader)) as items:
            async for item in items:
                if isinstance(item, Gap):
                    gaps.append(item)
                if isinstance(item, Update) and item.stream in received_counts:
                    tokens = received_counts[item.stream]
                    tokens[item.instance, item.token] = tokens.get((item.instance, item.token), 0) + 1

    async def receive_from_server(port: int) -> None:
        address = ServerAddress("127.0.0.1", port, Dialect.TOKENS, hs.server_name)
        async with aclosing(follow_server(address, server_progress, reader, streams=STREAMS)) as items:
            async for item in items:
                if isinstance(item, Update):
                    served_counts[item.stream][item.token] = served_counts[item.stream].get(item.token, 0) + 1

    stop = threading.Event()
    async with run_server(database.open_reader(), Dialect.TOKENS, name=hs.server_name) as port:
        tasks = [asyncio.create_task(receive_from_redis()), asyncio.create_task(receive_from_server(port))]
        traffic_task = asyncio.create_task(asyncio.to_thread(_generate_traffic, hs, stop))
        client = Redis(port=hs.redis_port)
        for _ in range(SECONDS // 6):
            await asyncio.sleep(6)
            for connection in client.client_list(_type="pubsub"):
                if connection["name"] == CLIENT_NAME:
                    client.client_kill_filter(_id=connection["id"])
        stop.set()
        await traffic_task
        await asyncio.sleep(15)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    await reader.close()
    assert any(gap.recovered for gap in gaps)
    return received_counts, served_counts


def _generate_traffic(hs: Synapse, stop: threading.Event, *ignored_errors: type[Exception]) -> None:
    """Write rooms, messages through every process, and rows of most other streams, until ``stop`` is set."""
    alice, bob = hs.register("alice", admin=True), hs.register("bob")
    for number in itertools.count():
        if stop.is_set():
            return
        with suppress(*ignored_errors):
            room = alice.create_room(preset="public_chat")
            bob.join(room)
            event_ids = [alice.say(room, f"message {number}", via=process) for process in hs.urls]
            bob.receipt(room, event_ids[-1])
            bob.set_account_data(f"test.{number % 3}", {"n": number})
            # Synapse fails if it writes a join while two other joins are in progress.
            with suppress(MatrixError):
                bob.set_display_name(f"Bob {number}")


def test_every_row_is_written_or_its_absence_explained(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    """The tap is killed and Redis is restarted. Then the received commands are compared with the database."""
    with ExitStack() as stack:
        hs = stack.enter_context(homeserver(tmp_path / "synapse"))
        settings = new_lake(
            synapse_dsn=hs.dsn, synapse_server_name=hs.server_name, synapse_config=hs.config_path,
            lakehouse_redis_url=f"redis://127.0.0.1:{hs.redis_port}",
        )  # fmt: skip
        hub, stop = Redis(port=hs.redis_port), threading.Event()
        traffic = threading.Thread(target=_generate_traffic, args=(hs, stop, MatrixError))
        with run_tap(settings, hub):
            time.sleep(5)
            traffic.start()
            time.sleep(15)
        time.sleep(10)
        with run_tap(settings, hub) as tap:
            time.sleep(10)
            os.kill(hub.info()["process_id"], signal.SIGKILL)
            time.sleep(3)
            stack.enter_context(redis(tmp_path, tmp_path / "redis.log", port=hs.redis_port))
            time.sleep(20)
            stop.set()
            traffic.join()
            time.sleep(20)
            assert tap.poll() is None
        coverage, announced, received_tokens = _compare(settings)

    totals = [sum(row[name] or 0 for row in coverage) for name in ("ids", "tokens_received", "tokens_read", "gaps")]
    assert sum(row["ids"] for row in coverage if row["stream"] == "events") > 200
    assert all(totals), totals
    assert {row["stream"] for row in coverage if row["tokens_received"]} >= {
        "events",
        "receipts",
        "account_data",
        "device_lists",
    }
    unexplained = [(row["stream"], row["instance"], row["missing"]) for row in coverage if row["unexplained"]]
    assert unexplained == []
    assert [row for row in coverage if row["token_regressions"]] == []
    assert announced == []
    assert len(received_tokens) == len(set(received_tokens)), "a token was written twice"


def _compare(settings: Settings) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[Any, ...]]]:
    """Return the coverage of the received commands, the announced rows that are not stored, and all received tokens."""
    with Database(settings) as database, closing(open_catalog(settings)) as catalog, open_incremental_lake(settings):
        bounds = database.open_reader().read_positions().by_stream
        tables.ensure_tables(catalog, CATALOGUE)
        for table in CATALOGUE.copied_tables():
            for column in table.streams.values():
                writer = table.writer_column or "null"
                rows = database.execute(
                    f"select distinct {column}, {writer} from {table.name} where {column} is not null"
                )
                ids = [{column: id_, **({writer: name} if table.writer_column else {})} for id_, name in rows]
                bronze = pa.Table.from_pylist(ids, schema=tables.get_arrow_schema(table))
                catalog.load_table(f"bronze.{table.name}").append(bronze)
        now = datetime.now(UTC)
        app = SparkApp("test", Run("live", now - timedelta(days=1), now), settings)
        comparison = prepare_comparison(app.spark, catalog, app.run, CATALOGUE, bounds)
        assert comparison
        announced = comparison.announced().toArrow().to_pylist()
        received_rows = (
            catalog.load_table(COMMANDS_TABLE).scan(EqualTo(term="command", value="RDATA")).to_arrow().to_pylist()
        )
        key = ("stream", "instance", "token", "ordinal")
        received_tokens = [tuple(row[name] for name in key) for row in received_rows if row["stream"] in STREAMS]
        return comparison.rows(), announced, received_tokens
