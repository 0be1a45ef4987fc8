"""Measure state and visibility on the bronze of a large homeserver, and write ``docs/bench-visibility.md``.

``python -m bench.large`` needs neither Synapse nor its database: the data is made, and written to a lake of its own.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import commands, filtering, large_bronze, large_rooms, machine, slope
from bench.large_report import Built, Large, write
from bench.large_rooms import Server
from bench.meter import Meter, server_pid
from bench.worker import Worker
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog import catalog
from synapse_lakehouse.local.postgres import embedded_postgres

MORE: Final = 0.001
"""New events of the increment, as a share of those before."""
SMALLER: Final = (0.03, 0.1, 0.3)
"""Sizes of the servers that the slope is drawn through, as shares of the one that is measured."""
OF_COMMANDS: Final = 0.1
"""The size of the server of which the commands are asked."""
LARGE: Final = {"lakehouse_driver_memory": "4g", "lakehouse_driver_java_options": "-XX:+UseParallelGC"}
"""What operators of a large server set: heap for large joins, and the compiler and collector that take their time."""
PAIRS: Final = 1_000_000_000
"""Rooms are asked for, from the largest on, until there are so many pairs."""
PAIRS_OF_SYNAPSE: Final = 1_500_000
"""So many are asked of Synapse, too, which takes minutes."""

_TABLES: Final = ("bronze.events", "bronze.state_groups", "bronze.state_groups_state", "silver.state_intervals",
                  "silver.event_circumstances", "gold.visibility_intervals")  # fmt: skip
_CHANGES: Final = """
    select count(*) from bronze.events
    where type = 'm.room.history_visibility' or type = 'm.room.member' and state_key like '%:bench.example'
"""
_SIZES: Final = """
    select room_id, 2 * events * users
    from (select room_id, count(*) as events from bronze.events group by room_id)
    join (select room_id, count(distinct user_id) + 1 as users from gold.visibility_intervals group by room_id)
    using (room_id)
"""

Progress = Callable[[str], None]


def main(
    scale: Annotated[float, typer.Option(help="1: 10M events in 2,000 rooms, the largest with 100,000 members")] = 1.0,
    report: Annotated[Path, typer.Option(help="folder for bench-visibility.md and .svg")] = PROJECT_FOLDER / "docs",
    again: Annotated[bool, typer.Option(help="write the report of the last measurements again")] = False,
) -> None:
    """Resolve the state and build who may see what, in full and after 0.1% new events, and ask for all of it."""
    kept = Settings().lakehouse_home / "bench" / "large.json"
    if not again:
        measured = measure(kept.parent / "large", scale, typer.echo)
        kept.write_text(json.dumps(asdict(measured), indent=1) + "\n")
    found = Large.read(kept)
    (report / "bench-visibility.md").write_text(write(found), encoding="utf-8")
    (report / "bench-visibility.svg").write_text(slope.draw(found.slopes()), encoding="utf-8")
    typer.echo(f"The report is {report / 'bench-visibility.md'}.")


def measure(home: Path, scale: float, progress: Progress) -> Large:
    """Make the data in the folder ``home``, and measure; before that a few smaller servers, for the slope."""
    smaller, events_of_commands, asked = [], 0, dict[str, list[float]]()
    for part in SMALLER:
        with _lake(home, scale * part, progress) as lake:
            full = lake.everything()
            lake.worker.call("publish")
            smaller.append((len(lake.before), full.wall, lake.increment().wall))
            if part == OF_COMMANDS:
                events_of_commands = len(lake.before)
                asked = commands.timed(lake.settings, lake.worker.call("release"), progress)
    with _lake(home, scale, progress) as lake:
        worker = lake.worker
        found = Large(scale, machine.described(), large_rooms.described(lake.server), smaller=smaller)
        found.events_of_commands, found.commands = events_of_commands, asked
        found.builds.append(lake.everything())
        rooms, counted = _rooms(worker, PAIRS)
        found.rows = {table: worker.call("rows", f"select count(*) from {table}")[0][0] for table in _TABLES}  # noqa: S608
        found.changes = worker.call("rows", _CHANGES)[0][0]
        found.intervals = worker.call("rows", "select count(user_id) from gold.visibility_intervals")[0][0]
        worker.call("publish")
        found.pairs, found.seconds = worker.call("count", rooms)
        if found.pairs != counted:
            raise AssertionError(f"{found.pairs} pairs were decided of {counted}")
        progress(f"{found.pairs:,} pairs in {found.seconds:.1f} s")
        rooms, _ = _rooms(worker, PAIRS_OF_SYNAPSE)
        found.asked, found.asked_seconds = filtering.ask(lake.settings, lake.databases, rooms, home / "answers.parquet")
        found.differences = worker.call("differences", rooms, home / "answers.parquet")
        progress(f"{found.asked:,} pairs in {found.asked_seconds:.1f} s by Synapse, {found.differences} differ")
        found.builds.append(lake.increment())
    return found


@dataclass(frozen=True)
class _Lake:
    """A lake of its own with bronze of a made-up homeserver, and who works on it."""

    settings: Settings
    server: Server
    before: range
    """The events that are there from the start."""
    databases: embedded_postgres.EmbeddedServer
    worker: Worker
    progress: Progress

    def everything(self) -> Built:
        """Resolve and build for the first time."""
        return self._built("everything", len(self.before))

    def increment(self) -> Built:
        """Let the last events come, and bring everything up to them."""
        events = len(self.server.events["room"])
        _fill(self.settings, self.server, range(len(self.before), events), self.progress)
        self.worker.call("new_run")
        return self._built("0.1% new events", events - len(self.before))

    def _built(self, what: str, events: int) -> Built:
        server = server_pid(self.settings.lakehouse_home / "postgres")
        with Meter(self.worker.pid, server, jvm=True) as resolving:
            self.worker.call("resolve")
        with Meter(self.worker.pid, server, jvm=True) as building:
            models = self.worker.call("build")
        assert resolving.cost
        assert building.cost
        self.progress(f"{what}: state {resolving.cost.wall:.1f} s, visibility {building.cost.wall:.1f} s")
        return Built(what, events, resolving.cost, building.cost, models)


@contextmanager
def _lake(home: Path, scale: float, progress: Progress) -> Iterator[_Lake]:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    server = large_rooms.server(scale, MORE)
    before = range(round(len(server.events["room"]) / (1 + MORE)))
    with embedded_postgres.run_server(home / "postgres") as databases:
        databases.create_database("large")
        settings = Settings().model_copy(
            update={
                "lakehouse_home": home,
                "lakehouse_warehouse": str(home / "warehouse"),
                "lakehouse_catalog_uri": databases.dsn("large"),
                "synapse_server_name": large_bronze.SERVER_NAME,
                **LARGE,
            }
        )
        _fill(settings, server, before, progress)
        with Worker("bench.deciding:Deciding", settings) as worker:
            yield _Lake(settings, server, before, databases, worker, progress)


def _fill(settings: Settings, server: Server, events: range, progress: Progress) -> None:
    rows = large_bronze.fill(catalog.open_catalog(settings), server, events)
    progress(f"{len(events):,} events are {rows:,} rows of bronze")


def _rooms(worker: Worker, most: int) -> tuple[list[str], int]:
    """Rooms, from the largest on, with no more than so many pairs, and all pairs of theirs; the smallest at least."""
    chosen, pairs = [], 0
    sizes = sorted(worker.call("rows", _SIZES), key=lambda row: -row[1])
    for room, more in sizes:
        if pairs + more <= max(most, sizes[-1][1]):
            chosen.append(room)
            pairs += more
    return chosen, pairs


if __name__ == "__main__":
    typer.run(main)
