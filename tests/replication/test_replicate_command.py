"""The tap, run as an operator runs it, writes all rows although it is killed or restarted."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from bench.meter import Meter
from bench.tap import publish, run_tap
from sample.redis import redis
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from tests.conftest import lakehouse
from tests.replication.database import Database
from tests.support.tap import run_replicate

pytestmark = pytest.mark.heavy


def test_a_tap_reads_the_rows_that_a_killed_tap_missed(
    homeserver: Database, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    def write_event(token: int) -> None:
        homeserver.add_event(token, "ep1")
        homeserver.complete_events(token)
        hub.publish("synapse.example", f'RDATA events ep1 {token} ["ev",["$e{token}","!r"]]')

    def wait_for_tokens(count: int) -> list[tuple[int, str]]:
        """Return the written tokens as soon as there are ``count`` of them."""
        deadline, actual = time.monotonic() + 30, list[tuple[int, str]]()
        while len(actual) < count:
            assert time.monotonic() < deadline, actual
            time.sleep(0.2)
            table = load_table_or_none(catalog, COMMANDS_TABLE)
            rows = table.scan().to_arrow().to_pylist() if table else []
            actual = [(row["token"], row["source"]) for row in rows if row["command"] == "RDATA"]
        return sorted(actual)

    with redis(tmp_path, tmp_path / "redis.log") as port:
        hub = Redis(port=port)
        overrides = homeserver.settings.model_dump(
            include={"synapse_dsn", "lakehouse_stream_writers", "synapse_config"}
        )
        settings = new_lake(**overrides, lakehouse_redis_url=f"redis://127.0.0.1:{port}")
        catalog = open_catalog(settings)
        with run_tap(settings, hub) as tap:
            time.sleep(1)
            write_event(2)
            assert wait_for_tokens(1) == [(2, "redis")]
            write_event(3)
            tap.kill()
        write_event(4)
        with run_tap(settings, hub) as tap:
            time.sleep(1)
            write_event(5)
            assert wait_for_tokens(4) == [(2, "redis"), (3, "database"), (4, "database"), (5, "redis")]
            write_event(6)
            time.sleep(0.5)
            tap.send_signal(signal.SIGTERM)
            assert tap.wait(timeout=15) == 0
        assert wait_for_tokens(5)[-1] == (6, "redis")
        findings = json.loads(lakehouse(settings, "doctor", "--format", "json").stdout)
        (finding,) = [item for item in findings if item["subject"] == "replication tap"]
        assert (finding["level"], finding["message"]) == ("OK", "the tap last listened 0 minutes ago")
        query = "select count(distinct token) from bronze.replication_commands where command = 'RDATA'"
        assert json.loads(lakehouse(settings, "query", query, "--format", "json").stdout) == [
            {"count(DISTINCT token)": 5}
        ]


@pytest.mark.parametrize("dialect", ["tokens", "instances"])
def test_a_tap_over_tcp_writes_served_and_missed_rows(
    homeserver: Database, new_lake: Callable[..., Settings], dialect: str
) -> None:
    def write_event(token: int) -> None:
        homeserver.add_event(token, "ep1")
        homeserver.complete_events(token)

    def wait_for_commands(command: str, tokens: list[int]) -> None:
        """Wait until the tokens of written events are ``tokens``."""
        deadline, actual = time.monotonic() + 60, None
        while actual != tokens:
            assert time.monotonic() < deadline, actual
            time.sleep(0.5)
            table = load_table_or_none(open_catalog(settings), COMMANDS_TABLE)
            rows = table.scan().to_arrow().to_pylist() if table else []
            actual = sorted(row["token"] for row in rows if (row["command"], row["stream"]) == (command, "events"))
            actual = actual if command == "RDATA" else sorted(set(actual))

    overrides = homeserver.settings.model_dump(include={"synapse_dsn", "lakehouse_stream_writers", "synapse_config"})
    settings = new_lake(**overrides)
    write_event(2)
    with run_replicate(settings, "serve", "--dialect", dialect, "--port", "0") as (output, _):
        port = output.partition("127.0.0.1:")[2].partition(",")[0]
        with run_replicate(settings, "tap", "--dialect", dialect, "--port", port) as (_, tap):
            wait_for_commands("POSITION", [2])
            write_event(3)
            wait_for_commands("RDATA", [3])
            tap.send_signal(signal.SIGTERM)
            assert tap.wait(timeout=30) == 0
        write_event(4)
        with run_replicate(settings, "tap", "--dialect", dialect, "--port", port):
            wait_for_commands("RDATA", [3, 4])
            write_event(5)
            wait_for_commands("RDATA", [3, 4, 5])


def test_a_tap_s_memory_does_not_grow(homeserver: Database, new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with redis(tmp_path, tmp_path / "redis.log") as port:
        hub = Redis(port=port)
        overrides = homeserver.settings.model_dump(
            include={"synapse_dsn", "lakehouse_stream_writers", "synapse_config"}
        )
        settings = new_lake(**overrides, lakehouse_redis_url=f"redis://127.0.0.1:{port}")
        memory = []
        with run_tap(settings, hub) as tap:
            for number in range(6):
                with Meter(tap.pid) as meter:
                    publish(port, "synapse.example", 5_000, 1_000_000 * (number + 1))
                assert meter.cost
                memory.append(meter.cost.memory)
    # The first round loads modules, and fills pools and the positions of each source, which all remain in memory.
    assert max(memory[-2:]) < 1.1 * max(memory[1:3]), memory
