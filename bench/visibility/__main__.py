"""Measure room state and visibility of a synthetic homeserver, and write ``docs/bench-visibility.md``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import spark_runs
from bench.machine import describe_machine
from bench.meter import Meter, server_pid
from bench.report import DOCS, Cell, Folder, Table, write_page
from bench.statistics import spread
from bench.visibility import build_costs, command_times, synapse_filter, synthetic_bronze, synthetic_rooms
from bench.visibility.build_costs import Build
from bench.visibility.synthetic_rooms import SyntheticServer
from bench.worker_process import WorkerProcess
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.local.postgres import embedded_postgres

INCREMENTS: Final = (0.001, 0.01, 0.1)
"""New events of the incremental builds, as shares of the events of the full build."""
SMALLER_SIZES: Final = (0.03, 0.1, 0.3)
"""Smaller servers, as shares of the scale. The slope of the growth needs them."""
COMMAND_SIZE: Final = 0.1
"""Size of the server for which the commands are timed."""
PAIRS: Final = 1_000_000_000
"""Maximum number of pairs (event and user) of the queried rooms. The largest rooms are queried first."""
SYNAPSE_PAIRS: Final = 1_500_000
"""The same for Synapse's filter, which takes minutes for this number of pairs."""

_TABLES: Final = ("bronze.events", "bronze.state_groups", "bronze.state_groups_state", "silver.state_intervals",
                  "silver.event_visibility_inputs", "gold.visibility_intervals")  # fmt: skip
_VISIBILITY_CHANGES: Final = """
    select count(*) from bronze.events
    where type = 'm.room.history_visibility' or type = 'm.room.member' and state_key like '%:bench.example'
"""
_PAIRS_PER_ROOM: Final = """
    select room_id, 2 * events * users
    from (select room_id, count(*) as events from bronze.events group by room_id)
    join (select room_id, count(distinct user_id) + 1 as users from gold.visibility_intervals group by room_id)
    using (room_id)
"""


@dataclass(frozen=True)
class Lake:
    """A lake with the bronze tables of a synthetic homeserver, and the process that builds its models."""

    settings: Settings
    server: SyntheticServer
    events: int
    """Events of the full build."""
    databases: embedded_postgres.EmbeddedServer
    worker: WorkerProcess

    def build_all(self) -> Build:
        """Build state and models from all events."""
        return self._build("all events", self.events)

    def build_increments(self) -> list[Build]:
        """Publish the full build. For each increment, add events to a new run's branch, build, and publish."""
        builds, start = [], self.events
        self.worker.call("publish")
        for share in INCREMENTS:
            stop = start + int(share * self.events)
            _fill_bronze(self.settings, self.server, range(start, stop), self.worker)
            builds.append(self._build(f"{share:.1%} new events", stop - start))
            self.worker.call("publish")
            start = stop
        return builds

    def _build(self, name: str, events: int) -> Build:
        server = server_pid(self.settings.lakehouse_home / "postgres")
        with Meter(self.worker.pid, server, jvm=True) as state:
            self.worker.call("resolve")
        with Meter(self.worker.pid, server, jvm=True) as models:
            seconds = self.worker.call("build")
        with Meter(self.worker.pid, server, jvm=True) as checks:
            check_times = self.worker.call("check")
        findings = self.count("select count(*) from gold.state_integrity where severity <> 'info'")
        others, page = self.worker.call("build_others"), self.worker.call("build_page")
        build = Build(
            name, events, state.cost, models.cost, seconds, checks.cost, check_times, findings, others, page
        )  # fmt: skip
        typer.echo(
            f"{name}: state {state.cost.wall:.1f} s, models {models.cost.wall:.1f} s, checks {check_times.wall:.1f} s, "
            f"others {others.wall:.1f} s, page {page.wall:.1f} s"
        )
        return build

    def count(self, query: str) -> int:
        """Return the single number of a query."""
        return int(self.worker.call("rows", query)[0][0])

    def select_rooms(self, max_pairs: int) -> tuple[list[str], int]:
        """Return rooms, from the largest on, with at most ``max_pairs`` pairs (at least one room), and their pairs."""
        rooms, pairs = [], 0
        sizes = sorted(self.worker.call("rows", _PAIRS_PER_ROOM), key=lambda row: -row[1])
        for room, room_pairs in sizes:
            if pairs + room_pairs <= max(max_pairs, sizes[-1][1]):
                rooms.append(room)
                pairs += room_pairs
        return rooms, pairs


def main(
    scale: Annotated[float, typer.Option(help="1: 10M events in 2,000 rooms, the largest with 100,000 members")] = 1.0,
    folder: Folder = DOCS,
) -> None:
    """Build state and visibility, in full and after new events; count the answers, and compare them with Synapse's."""
    home = Settings().lakehouse_home / "bench" / "visibility"
    machine = describe_machine(Scale=f"{scale:g}")
    builds: list[list[Build]] = []
    commands: list[list[Cell]] = []
    for size in SMALLER_SIZES:
        with _create_lake(home, scale * size) as lake:
            builds.append([lake.build_all(), *lake.build_increments()])
            if size == COMMAND_SIZE:
                seconds = command_times.time_commands(lake.settings, lake.worker.call("release"))
                commands = [[f"`lakehouse {name}`", spread(times)] for name, times in seconds.items()]
    with _create_lake(home, scale) as lake:
        full = lake.build_all()
        row_counts = [(f"`{table}`", lake.count(f"select count(*) from {table}")) for table in _TABLES]  # noqa: S608
        intervals = lake.count("select count(user_id) from gold.visibility_intervals")
        per_change = intervals / lake.count(_VISIBILITY_CHANGES)
        answers = _measure_answers(lake, home)
        builds.append([full, *lake.build_increments()])
    costs = [cost for build in builds[-1] for cost in (build.state, build.models)]
    metrics: list[list[Cell]] = [
        ["minutes for state and visibility", full.wall / 60],
        ["memory, JVM included, GB", max(cost.memory for cost in costs) / 1e9],
        ["intervals per change of a membership or a history visibility", per_change],
        *answers,
    ]
    write_page(
        "bench-visibility.md", folder, machine,
        Table("Generated homeserver", ("", "count"), list(synthetic_rooms.describe(lake.server).items())),
        Table("Tables", ("table", "rows"), row_counts),
        Table("Visibility", ("", "measured"), metrics),
        build_costs.tabulate_growth(builds),
        Table(f"Commands, with {builds[SMALLER_SIZES.index(COMMAND_SIZE)][0].events:,} events",
              ("command", "seconds"), commands),
        build_costs.tabulate_model_times(builds[-1]),
        build_costs.tabulate_check_times(builds),
        build_costs.tabulate_shares(builds),
        build_costs.tabulate_other_times(builds[-1]),
    )  # fmt: skip


def _measure_answers(lake: Lake, home: Path) -> list[list[Cell]]:
    """Count the outcomes of the view, and compare some of them with Synapse's filter."""
    rooms, expected = lake.select_rooms(PAIRS)
    lake.worker.call("publish")
    pairs, seconds = lake.worker.call("count", rooms)
    if pairs != expected:
        raise AssertionError(f"The view has {pairs} pairs, expected {expected}.")
    rooms, _ = lake.select_rooms(SYNAPSE_PAIRS)
    recording = home / "answers.parquet"
    synapse_pairs, synapse_seconds = synapse_filter.record_answers(lake.settings, lake.databases, rooms, recording)
    differences = lake.worker.call("differences", rooms, recording)
    rate, synapse_rate = pairs / seconds, synapse_pairs / synapse_seconds
    return [
        ["pairs of the view", pairs],
        ["pairs of the view per second", rate],
        ["pairs of Synapse's filter", synapse_pairs],
        ["pairs of Synapse's filter per second", synapse_rate],
        ["view divided by Synapse's filter", rate / synapse_rate],
        ["pairs that differ from Synapse's filter", differences],
    ]


@contextmanager
def _create_lake(home: Path, scale: float) -> Iterator[Lake]:
    server = synthetic_rooms.generate_server(scale, sum(INCREMENTS))
    events = int(len(server.events["room"]) / (1 + sum(INCREMENTS)))
    # Large joins need a larger heap than the other benchmarks. Feeds of 1,000 events for all users would be larger than
    # all other tables.
    changes = {
        "lakehouse_home": home,
        "synapse_server_name": synthetic_bronze.SERVER_NAME,
        "lakehouse_driver_memory": "4g",
        "lakehouse_feed_length": 100,
    }
    with spark_runs.new_lake(home) as (lake, databases):
        settings = lake.model_copy(update=changes)
        with WorkerProcess("bench.visibility.visibility_build:VisibilityBuild", settings) as worker:
            _fill_bronze(settings, server, range(events), worker)
            yield Lake(settings, server, events, databases, worker)


def _fill_bronze(settings: Settings, server: SyntheticServer, events: range, worker: WorkerProcess) -> None:
    """Begin a run, and add ``events`` to its branch."""
    rows = synthetic_bronze.fill(open_catalog(settings), server, events, worker.call("new_run"))
    worker.call("refresh_tables")
    typer.echo(f"{len(events):,} events, {rows:,} rows of bronze")


if __name__ == "__main__":
    typer.run(main)
