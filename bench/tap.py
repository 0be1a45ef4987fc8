"""Measure how much of Synapse's talk a tap lands, and how soon, and write ``docs/bench-tap.md``.

``python -m bench.tap`` publishes a made-up homeserver's replication commands on a Redis, at a rate, to the real tap.
"""

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
from typing import Annotated, Final

import typer
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from redis import Redis

from bench import machine
from bench.meter import Meter
from bench.report import markdown
from sample.redis import redis
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.replication.tap.redis_client import CLIENT_NAME

GOAL: Final = 20_000
"""RDATA a second, on one core."""
SOON: Final = 10
"""Seconds from the wire to the lake while little is said."""
RATES: Final = (10_000, 20_000, 30_000)
SECONDS: Final = 20
ASKED: Final = 10
_AT_ONCE: Final = 500
_FIRST: Final = 1_000_000
"""The first token, over all that the sample's database has."""

_ROWS: Final = (
    ("caches", "persister1", '["get_user_by_id", ["@user{n}:synapse.example"], 1795216825120]'),
    ("events", "persister1", '["ev", ["$0123456789abcdefghijklmnopqrstuvwxyzABCDE{n}", "!room:synapse.example",'
     ' "m.room.message", null, null, null, "join", false, false]]'),
    ("caches", "persister2", '["cs_cache_fake", ["!room{n}:synapse.example"], 1795216825120]'),
    ("receipts", "worker1", '["!room:synapse.example", "m.read", "@user{n}:synapse.example", "$event{n}", null,'
     ' {{"ts": 1795216840155}}]'),
)  # fmt: skip
"""What Synapse says most: caches that are to be forgotten, events, receipts; with stream and instance."""

_HEAD = """\
# How much does the tap keep up with?

`make bench-tap` writes this page. It publishes replication commands of several kinds in turns (caches, events,
receipts) on a Redis, at a rate, for {seconds} seconds, while `lakehouse replicate tap` listens and lands them in
`bronze.replication_commands`, on the same machine. Each must be in the lake once. Then, with nothing else said, single
commands are published, and the lake is asked until they are there.
"""


@dataclass(frozen=True)
class Landed:
    """What was published a second, how many commands of it were landed, once and more often, and what it took: CPU
    seconds, bytes of memory at most, and seconds until the lake had all."""

    rate: int
    published: int
    landed: int
    twice: int
    cpu: float
    memory: int
    seconds_behind: float


def main(
    report: Annotated[Path, typer.Option(help="folder for bench-tap.md")] = PROJECT_FOLDER / "docs",
) -> None:
    """Publish at several rates, then single commands, and look what the lake has of them."""
    home = Settings().lakehouse_home / "bench" / "tap"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    described = machine.described()
    with (
        connect_services(Settings().model_copy(update={"lakehouse_home": home})) as settings,
        redis(home, home / "log") as port,
    ):
        hub, url = Redis(port=port), f"redis://127.0.0.1:{port}"
        with running_tap(settings.model_copy(update={"lakehouse_redis_url": url}), hub) as tap:
            rounds = []
            for number, rate in enumerate(RATES):
                rounds.append(_round(settings, port, tap.pid, rate, _FIRST * (number + 1)))
                typer.echo(str(rounds[-1]))
            waits = [_wait(settings, hub, _FIRST * (len(RATES) + 1) + number) for number in range(ASKED)]
            typer.echo(f"{min(waits):.1f} to {max(waits):.1f} s from the wire to the lake")
    (report / "bench-tap.md").write_text(write(described, rounds, waits), encoding="utf-8")
    typer.echo(f"The report is {report / 'bench-tap.md'}.")


def write(described: dict[str, str], rounds: list[Landed], waits: list[float]) -> str:
    """The whole page."""
    names = (
        "published a second",
        "commands",
        "landed",
        "twice",
        "CPU seconds of the tap",
        "a CPU second",
        "MB at most",
        "seconds behind",
    )
    lines = [
        (
            f"{one.rate:,}",
            f"{one.published:,}",
            f"{one.landed:,}",
            f"{one.twice:,}",
            f"{one.cpu:.1f}",
            f"{one.landed / one.cpu:,.0f}",
            f"{one.memory / 1e6:,.0f}",
            f"{one.seconds_behind:.1f}",
        )
        for one in rounds
    ]
    least = min(one.landed / one.cpu for one in rounds if one.rate >= GOAL)
    return "\n".join(
        [
            _HEAD.format(seconds=SECONDS),
            *markdown(("", ""), described.items()),
            "",
            *markdown(names, lines),
            "",
            *markdown(
                ("", "goal", "measured"),
                [
                    ("RDATA landed for each CPU second", f"≥ {GOAL:,}", f"{least:,.0f}"),
                    ("seconds from the wire to the lake, at most", f"≤ {SOON}", f"{max(waits):.1f}"),
                ],
            ),
            "",
        ]
    )


@contextmanager
def running_tap(settings: Settings, redis_client: Redis) -> Iterator[subprocess.Popen[str]]:
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


def _round(settings: Settings, port: int, pid: int, rate: int, first: int) -> Landed:
    with Meter(pid) as meter:
        # In a process of its own, so that it keeps its pace.
        publisher = get_context("spawn").Process(
            target=publish, args=(port, str(settings.synapse_server_name), rate, first)
        )
        publisher.start()
        publisher.join()
        ended, wanted = time.monotonic(), rate * SECONDS
        _until(lambda: len(_tokens(settings, first)) >= wanted, seconds=120, must=False)
        behind = time.monotonic() - ended
    tokens, cost = _tokens(settings, first), meter.cost
    assert cost
    return Landed(rate, wanted, len(set(tokens)), len(tokens) - len(set(tokens)), cost.cpu, cost.memory, behind)


def publish(port: int, server_name: str, rate: int, first: int) -> None:
    """Publish ``rate`` commands a second, with tokens from ``first`` on."""
    hub, started = Redis(port=port), time.monotonic()
    for begin in range(0, rate * SECONDS, _AT_ONCE):
        time.sleep(max(0.0, started + begin / rate - time.monotonic()))
        with hub.pipeline(transaction=False) as pipeline:
            for number in range(begin, min(begin + _AT_ONCE, rate * SECONDS)):
                pipeline.publish(server_name, _command(first + number))
            pipeline.execute()


def _command(token: int) -> str:
    stream, instance, row = _ROWS[token % len(_ROWS)]
    return f"RDATA {stream} {instance} {token} {row.format(n=token % 5000)}"


def _wait(settings: Settings, hub: Redis, token: int) -> float:
    """Seconds until a command that was published is in the lake."""
    started = time.monotonic()
    hub.publish(str(settings.synapse_server_name), _command(token))
    _until(lambda: bool(_scanned(settings, EqualTo(term="token", value=token))))
    return time.monotonic() - started


def _tokens(settings: Settings, first: int) -> list[int]:
    return _scanned(
        settings, And(GreaterThanOrEqual(term="token", value=first), LessThan(term="token", value=first + _FIRST))
    )


def _scanned(settings: Settings, condition: BooleanExpression) -> list[int]:
    # The first token of each writer brings a GAP, too: the database knows nothing of these.
    rows = And(EqualTo(term="command", value="RDATA"), condition)
    with closing(open_catalog(settings)) as catalog:
        table = load_table_or_none(catalog, COMMANDS_TABLE)
        return table.scan(rows, selected_fields=("token",)).to_arrow()["token"].to_pylist() if table else []


def _until(holds: Callable[[], bool], seconds: float = 60, *, must: bool = True) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            if must:
                raise TimeoutError
            return
        time.sleep(0.2)


if __name__ == "__main__":
    typer.run(main)
