"""Measure the throughput and the delay of the replication tap, and write ``docs/bench-tap.md``."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import typer
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from redis import Redis

from bench.machine import describe_machine
from bench.meter import Cost, Meter
from bench.report import DOCS, Folder, Table, write_page
from bench.statistics import spread
from sample.redis import redis
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.replication.tap.redis_client import CLIENT_NAME

RATES: Final = (10_000, 20_000, 30_000)
SECONDS: Final = 20
SINGLE_COMMANDS: Final = 10
TOKENS_PER_RUN: Final = 1_000_000
"""Number of tokens of a run. It is also the first token, because it is above all tokens of the sample's database."""
_BATCH: Final = 500

_ROWS: Final = (
    ("caches", "persister1", '["get_user_by_id", ["@user{n}:synapse.example"], 1795216825120]'),
    ("events", "persister1", '["ev", ["$0123456789abcdefghijklmnopqrstuvwxyzABCDE{n}", "!room:synapse.example",'
     ' "m.room.message", null, null, null, "join", false, false]]'),
    ("caches", "persister2", '["cs_cache_fake", ["!room{n}:synapse.example"], 1795216825120]'),
    ("receipts", "worker1", '["!room:synapse.example", "m.read", "@user{n}:synapse.example", "$event{n}", null,'
     ' {{"ts": 1795216840155}}]'),
)  # fmt: skip
"""Stream, instance and row of Synapse's most frequent commands: cache invalidations, events, receipts."""


@dataclass(frozen=True)
class TapRun:
    """Numbers of commands published at ``rate`` per second, of commands in the lake, and of duplicates; the tap's cost.

    ``delay`` is the number of seconds from the last command until all commands are in the lake.
    """

    rate: int
    published: int
    landed: int
    duplicates: int
    cost: Cost
    delay: float


def main(folder: Folder = DOCS) -> None:
    """Publish at several rates, then single commands, and read them from the lake."""
    machine = describe_machine()
    home = Settings().lakehouse_home / "bench" / "tap"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with (
        connect_services(Settings().model_copy(update={"lakehouse_home": home})) as settings,
        redis(home, home / "log") as port,
    ):
        client = Redis(port=port)
        tap_settings = settings.model_copy(update={"lakehouse_redis_url": f"redis://127.0.0.1:{port}"})
        with run_tap(tap_settings, client) as tap:
            runs = []
            for number, rate in enumerate(RATES, 1):
                runs.append(_measure_rate(settings, port, tap.pid, rate, TOKENS_PER_RUN * number))
                typer.echo(runs[-1])
            first = TOKENS_PER_RUN * (len(RATES) + 1)
            delays = [_measure_delay(settings, client, first + number) for number in range(SINGLE_COMMANDS)]
    columns = (
        "commands per second", "published", "landed", "duplicates", "CPU seconds of the tap", "landed per CPU second",
        "memory, MB", "delay, seconds",
    )  # fmt: skip
    rows = [
        (run.rate, run.published, run.landed, run.duplicates, run.cost.cpu, int(run.landed / run.cost.cpu),
         run.cost.memory / 1e6, run.delay)
        for run in runs
    ]  # fmt: skip
    single = Table("Single commands", ("commands", "delay, seconds"), [(len(delays), spread(delays))])
    write_page("bench-tap.md", folder, machine, Table("Continuous load", columns, rows), single)


@contextmanager
def run_tap(settings: Settings, redis_client: Redis) -> Iterator[subprocess.Popen[str]]:
    """Start ``lakehouse replicate tap``, wait for its subscription, and kill it at the end.

    :raises TimeoutError: if the tap does not subscribe within 60 seconds.
    :raises RuntimeError: if the tap ends before it subscribes.
    """
    command = [str(Path(sys.executable).with_name("lakehouse")), "replicate", "tap"]
    with subprocess.Popen(
        command, env=os.environ | settings.to_environment(), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as tap:  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not any(client["name"] == CLIENT_NAME for client in redis_client.client_list(_type="pubsub")):
                if tap.poll() is not None:
                    raise RuntimeError(f"The tap ended before it subscribed: {tap.communicate()[0]}")
                if time.monotonic() > deadline:
                    raise TimeoutError("The tap did not subscribe within 60 seconds.")
                time.sleep(0.05)
            yield tap
        finally:
            tap.kill()
            tap.communicate()


def _measure_rate(settings: Settings, port: int, pid: int, rate: int, first: int) -> TapRun:
    published = rate * SECONDS
    with Meter(pid) as meter:
        # A separate process keeps the rate.
        publisher = get_context("spawn").Process(
            target=publish, args=(port, str(settings.synapse_server_name), rate, first)
        )
        publisher.start()
        publisher.join()
        ended_at = time.monotonic()
        _wait_until(lambda: len(_read_run(settings, first)) >= published, seconds=120, required=False)
        delay = time.monotonic() - ended_at
    tokens = _read_run(settings, first)
    landed = len(set(tokens))
    return TapRun(rate, published, landed, len(tokens) - landed, meter.cost, delay)


def publish(port: int, server_name: str, rate: int, first: int) -> None:
    """Publish ``rate`` commands per second, with tokens from ``first`` on."""
    client, started = Redis(port=port), time.monotonic()
    for begin in range(0, rate * SECONDS, _BATCH):
        time.sleep(max(0.0, started + begin / rate - time.monotonic()))
        with client.pipeline(transaction=False) as pipeline:
            for number in range(begin, min(begin + _BATCH, rate * SECONDS)):
                pipeline.publish(server_name, _command(first + number))
            pipeline.execute()


def _command(token: int) -> str:
    stream, instance, row = _ROWS[token % len(_ROWS)]
    return f"RDATA {stream} {instance} {token} {row.format(n=token % 5000)}"


def _measure_delay(settings: Settings, client: Redis, token: int) -> float:
    """Publish one command, and return the seconds until it is in the lake."""
    started = time.monotonic()
    client.publish(str(settings.synapse_server_name), _command(token))
    _wait_until(lambda: bool(_read_tokens(settings, EqualTo(term="token", value=token))))
    return time.monotonic() - started


def _read_run(settings: Settings, first: int) -> list[int]:
    last = first + TOKENS_PER_RUN
    return _read_tokens(
        settings, And(GreaterThanOrEqual(term="token", value=first), LessThan(term="token", value=last))
    )


def _read_tokens(settings: Settings, condition: BooleanExpression) -> list[int]:
    # The tap also writes a GAP row before each writer's first token, because the database has no such position.
    rows = And(EqualTo(term="command", value="RDATA"), condition)
    with closing(open_catalog(settings)) as catalog:
        table = load_table_or_none(catalog, COMMANDS_TABLE)
        return table.scan(rows, selected_fields=("token",)).to_arrow()["token"].to_pylist() if table else []


def _wait_until(condition: Callable[[], bool], seconds: float = 60, *, required: bool = True) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            if required:
                raise TimeoutError
            return
        time.sleep(0.2)


if __name__ == "__main__":
    typer.run(main)
