"""What the large lake cost, as it is kept and as a page."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.meter import Cost
from bench.report import decimal, markdown, met
from bench.statistics import spread

_HEAD = """\
# What do state and visibility cost?

`make bench-visibility` writes this page. It makes the bronze tables of a large homeserver (no Synapse is needed),
resolves the state of all rooms and builds what `gold.event_visibility` reads, as the main job does but without dbt's
tests. It does so once more after 0.1% new events, which come to all rooms that are active then. One round, with
`LAKEHOUSE_DRIVER_MEMORY=4g` and `LAKEHOUSE_DRIVER_JAVA_OPTIONS=-XX:+UseParallelGC`.
"""

_PAIRS = """\
Pairs are all users who ever had a membership in a room, and one who never had, times its events, times peeking or not,
of as many rooms as come to {pairs:,}. All of them were decided, and counted by their outcome: read from the view by
DuckDB, as the commands do, on both cores. Synapse's own filter was asked on the same machine about
{asked:,} of these pairs, in a database of Synapse's with the same rooms, each room's events at once for a user: on one
core, as it works, {filter:,.0f} a second. Of its answers {differences:,} differ from the view's.
"""


@dataclass(frozen=True)
class Built:
    """A run of both steps: how many events were new to it; seconds of each model, which run side by side."""

    what: str
    events: int
    resolving: Cost
    building: Cost
    models: dict[str, float]

    @property
    def wall(self) -> float:
        """Seconds of both."""
        return self.resolving.wall + self.building.wall


@dataclass
class Large:
    """Everything. ``changes``: memberships of local users and history visibilities that were ever set. ``asked``: pairs
    that Synapse's own filter was asked, and ``differences`` of its answers. ``smaller``: of smaller servers, the events
    and the seconds of everything and of the increment. ``commands``: seconds of each, of a server of so many events."""

    scale: float
    machine: dict[str, str]
    made: dict[str, int]
    builds: list[Built] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    intervals: int = 0
    pairs: int = 0
    seconds: float = 0.0
    asked: int = 0
    asked_seconds: float = 0.0
    differences: int = 0
    smaller: list[tuple[int, float, float]] = field(default_factory=list)
    events_of_commands: int = 0
    commands: dict[str, list[float]] = field(default_factory=dict)

    def slopes(self) -> dict[str, list[tuple[int, float]]]:
        """Events of each server and seconds of what was done with them."""
        full, increment = self.builds
        points = [*self.smaller, (full.events, full.wall, increment.wall)]
        return {
            full.what: [(events, seconds) for events, seconds, _ in points],
            increment.what: [(events, seconds) for events, _, seconds in points],
        }

    @classmethod
    def read(cls, path: Path) -> "Large":
        """What was kept as JSON."""
        kept: dict[str, Any] = json.loads(path.read_text())
        costs = ("resolving", "building")
        builds = [Built(**one | {name: Cost(**one[name]) for name in costs}) for one in kept.pop("builds")]
        return cls(**kept, builds=builds)


def write(large: Large) -> str:
    """The whole page."""
    full, increment = large.builds
    memory = max(one.memory for built in large.builds for one in (built.resolving, built.building)) / 1e9
    speed, filters = large.pairs / large.seconds, large.asked / large.asked_seconds
    stored, goal = large.intervals / large.changes, 1000 * filters
    share, slowest = increment.wall / full.wall, max(map(median, large.commands.values()))
    names = list(full.models)
    return "\n".join(
        [
            _HEAD,
            "## What was measured on\n",
            *markdown(("", ""), large.machine.items()),
            "",
            *markdown(("made", ""), [(name, f"{number:,}") for name, number in large.made.items()]),
            "",
            *markdown(("table", "rows"), [(f"`{name}`", f"{number:,}") for name, number in large.rows.items()]),
            "",
            f"Scale {large.scale:g}; scale 1 is 10 million events in 2,000 rooms, and stands for the goals.\n",
            "## Goals\n",
            *markdown(
                ("", "goal", "measured", ""),
                [
                    ("minutes for state and visibility", "≤ 15", f"{full.wall / 60:.1f}", met(full.wall <= 900)),
                    ("GB of memory, JVM included, at most", "≤ 8", f"{memory:.1f}", met(memory <= 8)),
                    ("of that time after 0.1% new events", "≤ 5%", f"{share:.1%}", met(share <= 0.05)),
                    ("intervals for a change of membership or visibility", "≤ 2", f"{stored:.2f}", met(stored <= 2)),
                    ("pairs decided a second", f"≥ {goal:,.0f}", f"{speed:,.0f}", met(speed >= goal)),
                    ("times Synapse's filter", "≥ 1,000", f"{speed / filters:,.0f}", met(speed >= goal)),
                    (
                        f"s for the slowest command, of {large.events_of_commands:,} events",
                        "≤ 3",
                        f"{slowest:.1f}",
                        met(slowest <= 3),
                    ),
                ],
            ),
            "",
            _PAIRS.format(pairs=large.pairs, asked=large.asked, filter=filters, differences=large.differences),
            "## What it costs with more events\n",
            "![Seconds of both builds against the events of the server](bench-visibility.svg)\n",
            *markdown(
                ("events", "everything, s", "0.1% new events, s", "share"),
                [
                    (f"{events:,}", f"{whole:.1f}", f"{part:.1f}", f"{part / whole:.1%}")
                    for (events, whole), (_, part) in zip(*large.slopes().values(), strict=True)
                ],
            ),
            "",
            "## What a question costs\n",
            f"Seconds of each command in a process of its own, of a server of {large.events_of_commands:,} events:"
            " about the newest event of its largest room, and a member of that; `--as-of` in its smallest room."
            " Medians, with the smallest and the largest in brackets.\n",
            *markdown(
                ("command", "s"),
                [(f"`lakehouse {name}`", decimal(spread(seconds))) for name, seconds in large.commands.items()],
            ),
            "",
            "## Where the time goes\n",
            "Seconds. dbt builds models side by side, and takes some for itself; finding what new events concern counts"
            " for the model that waits for it.\n",
            *markdown(
                ("", "new events", "state", *(f"`{name}`" for name in names), "all models", "CPU of all", "together"),
                [_line(built, names) for built in large.builds],
            ),
            "",
        ]
    )  # fmt: skip


def _line(built: Built, names: list[str]) -> list[str]:
    seconds = [built.resolving.wall, *(built.models.get(name, 0.0) for name in names), built.building.wall]
    cpu = built.resolving.cpu + built.building.cpu
    return [built.what, f"{built.events:,}", *(f"{one:.1f}" for one in [*seconds, cpu, built.wall])]
