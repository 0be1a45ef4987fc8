"""Format the costs of builds as tables."""

from dataclasses import dataclass
from typing import NamedTuple

from bench.meter import Cost
from bench.report import Cell, Table
from bench.statistics import slope


class ModelTimes(NamedTuple):
    """Seconds of each dbt model, and ``wall``, the seconds of all models, which run in parallel, after dbt's start."""

    seconds: dict[str, float]
    wall: float


@dataclass(frozen=True)
class Build:
    """Cost of resolving the state and of the dbt models, and the times of each group of models.

    * ``models``, ``model_seconds``: visibility models. ``checks``, ``check_times``: integrity models.
    * ``page_times``: models that only the page reads. ``other_times``: all other models.
    """

    name: str
    events: int
    state: Cost
    models: Cost
    model_seconds: dict[str, float]
    checks: Cost
    check_times: ModelTimes
    findings: int
    other_times: ModelTimes
    page_times: ModelTimes

    @property
    def wall(self) -> float:
        """Seconds of state and models."""
        return self.state.wall + self.models.wall

    @property
    def run_wall(self) -> float:
        """Seconds of state and all models of a run."""
        return self.wall + self.check_times.wall + self.other_times.wall + self.page_times.wall


def tabulate_growth(builds: list[list[Build]]) -> Table:
    """Return the seconds of state and visibility by number of events, and of increments as shares of the full build."""
    rows: list[list[Cell]] = [
        [
            full.events,
            full.wall,
            *(cell for build in increments for cell in (build.wall, f"{build.wall / full.wall:.1%}")),
        ]
        for full, *increments in builds
    ]
    slopes = [slope([(sizes[0].events, sizes[number].wall) for sizes in builds]) for number in range(len(builds[0]))]
    rows.append(["slope (1 is linear)", slopes[0], *(cell for value in slopes[1:] for cell in (value, None))])
    columns = (cell for build in builds[0][1:] for cell in (f"{build.name}, s", "share"))
    return Table("Growth with the number of events", ("events", "all events, s", *columns), rows)


def tabulate_model_times(builds: list[Build]) -> Table:
    """Return seconds of the state and of each model of visibility."""
    names = list(builds[0].model_seconds)
    rows: list[list[Cell]] = [
        [
            build.name, build.events, build.state.wall, *(build.model_seconds.get(name, 0.0) for name in names),
            build.models.wall, build.state.cpu + build.models.cpu, build.wall,
        ]
        for build in builds
    ]  # fmt: skip
    columns = ("build", "events", "state", *(f"`{name}`" for name in names), "all models", "CPU", "state and models")
    return Table("Seconds of each step", columns, rows)


def tabulate_check_times(builds: list[list[Build]]) -> Table:
    """Return seconds and memory of the integrity models, by size."""
    names = list(builds[0][0].check_times.seconds)
    rows: list[list[Cell]] = [
        [
            build.name, sizes[0].events, *(build.check_times.seconds.get(name, 0.0) for name in names),
            build.check_times.wall,
            build.checks.memory / 1e9, max(build.state.memory, build.models.memory) / 1e9, build.findings,
        ]
        for sizes in builds for build in sizes
    ]  # fmt: skip
    columns = (
        "build", "events", *(f"`{name}`" for name in names), "integrity models, s", "memory, GB",
        "memory of state and other models, GB", "findings",
    )  # fmt: skip
    return Table("Seconds of the integrity models", columns, rows)


def tabulate_shares(builds: list[list[Build]]) -> Table:
    """Return seconds of the parts of a run, and their shares in state and all models."""
    rows: list[list[Cell]] = [
        [
            build.name, sizes[0].events, build.wall,
            *(cell for times in (build.check_times, build.page_times, build.other_times)
              for cell in (times.wall, f"{times.wall / build.run_wall:.1%}")),
            build.run_wall,
        ]
        for sizes in builds for build in sizes
    ]  # fmt: skip
    parts = (
        cell for part in ("integrity models", "models of the page", "other models") for cell in (f"{part}, s", "share")
    )
    return Table("Shares of state and all models of a run",
                 ("build", "events", "state and visibility, s", *parts, "all, s"), rows)  # fmt: skip


def tabulate_other_times(builds: list[Build]) -> Table:
    """Return seconds of the models that only the page reads, and of all other models."""
    names = [*builds[0].page_times.seconds, *builds[0].other_times.seconds]
    rows: list[list[Cell]] = [
        [f"`{name}`", *((build.page_times.seconds | build.other_times.seconds).get(name, 0.0) for build in builds)]
        for name in names
    ]
    return Table("Seconds of the models of the page and of the other models",
                 ("model", *(build.name for build in builds)), rows)  # fmt: skip
