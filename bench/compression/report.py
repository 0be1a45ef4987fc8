"""What compressing cost, as it is kept and as a page."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.compression.contest import Plan, Rewritten
from bench.report import decimal, markdown, met, number
from bench.statistics import spread

STRATEGIES: Final = ("levels", "best")
OURS: Final = ("levels_applied", "best_applied")
MB: Final = 1_000_000
USUAL: Final = "federated, 20,000 members"
"""The room of 1.4 million rows, whose memory has a goal."""
GOALS: Final = {
    "one room of 40,000 groups": 0.76,
    USUAL: 0.50,
    "calm, with backfill": 0.65,
    "linear, 20,000 members": 0.60,
}
"""Rows that ``best`` may leave, as a share of what the reference leaves."""
ALL_ROOMS: Final = 0.62

_HEAD = """\
# What does compressing room state give back, and what does it cost?

`make bench-compression` writes this page. It makes rooms of several shapes in PostgreSQL and lets `lakehouse compress`
and Synapse's own compressor (synapse-auto-compressor 0.1.2 from PyPI, levels 100,50,25, the whole room as one chunk)
compress a copy of each, in turns (rounds: {rounds}). Figures are medians, with the smallest and the largest in
brackets. The rooms are synthetic: shares of rows are those of such rooms, and other rooms have others.
"""
_LEAST = """\
`levels` left what the reference left, to the row, each time. The last column is what no way of storing these states
can go below, however long its chains: each piece of state once, and a row for each state that is new without one.
`best` keeps chains at 100 groups; the reference's levels allow 175.
"""
_PLANNING = """\
CPU seconds of reading a room, deciding and verifying every group. The reference cannot but write as well, which is
among its seconds; what the database takes is not, nor is what a process of ours takes to load what is compiled (about a
second). Memory is the largest resident set of the whole process.
"""
_WRITING = """\
Rows deleted and inserted for each second between the first lock and the last commit, by the server's own log, with
PostgreSQL's usual settings but autovacuum. `in all` counts the seconds of the whole command instead: ours starts
Python, measures what reading costs, and reads the room again afterwards to compare every group. The reference writes a
group with each transaction, and checks none. `levels` leaves the same rows, so both move the same.
"""


@dataclass(frozen=True)
class Round:
    """Each way once: plans of ours, and rooms that were compressed."""

    levels: Plan
    best: Plan
    reference: Rewritten
    levels_applied: Rewritten
    best_applied: Rewritten


@dataclass
class Results:
    """Rounds by room, and plans of a very large room by strategy."""

    scale: float
    machine: dict[str, str]
    rooms: dict[str, list[Round]] = field(default_factory=dict)
    large: dict[str, Plan] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """What was kept as JSON."""
        kept: dict[str, Any] = json.loads(path.read_text())
        rooms = {name: [_round(one) for one in rounds] for name, rounds in kept.pop("rooms").items()}
        large = {strategy: Plan(**one) for strategy, one in kept.pop("large").items()}
        return cls(**kept, rooms=rooms, large=large)

    def all_rooms(self) -> list[list[Round]]:
        """Round by round, those of all rooms."""
        return list(map(list, zip(*self.rooms.values(), strict=True)))


def _round(kept: dict[str, Any]) -> Round:
    made: dict[str, Any] = {name: (Plan if name in STRATEGIES else Rewritten)(**one) for name, one in kept.items()}
    return Round(**made)


def write(results: Results) -> str:
    """The whole page."""
    rounds = len(results.all_rooms())
    return "\n".join(
        [
            _HEAD.format(rounds=rounds),
            "## What was measured on\n",
            *markdown(("", ""), results.machine.items()),
            "",
            f"Scale {results.scale:g}; scale 1 stands for the goals.\n",
            "## Goals\n",
            *markdown(("", "goal", "measured", ""), _goals(results)),
            "",
            "## Rows\n",
            *markdown(("room", "rows", "reference leaves", "best leaves", "share", "no way leaves fewer than"),
                      _rows(results)),
            "",
            _LEAST,
            "## Deciding\n",
            *markdown(
                ("room", "reference", "levels", "share", "best", "share", "levels, MB", "best, MB"),
                _planning(results),
            ),
            "",
            _PLANNING,
            "## Writing\n",
            *markdown(
                ("room", "way", "rows a second", "transactions", "locks held, ms", "at most, ms", "in all, s"),
                _writing(results),
            ),
            "",
            _WRITING,
        ]
    )  # fmt: skip


def _goals(results: Results) -> Iterator[tuple[str, str, str, str]]:
    for name, goal in GOALS.items():
        share = _share(results.rooms[name][:1])
        yield f"of the reference's rows left by best, {name}", f"≤ {goal:.2f}", f"{share:.2f}", met(share <= goal)
    rounds = results.all_rooms()
    share = _share(rounds[0])
    yield (
        "of the reference's rows left by best, all rooms",
        f"≤ {ALL_ROOMS:.2f}",
        f"{share:.2f}",
        met(share <= ALL_ROOMS),
    )
    for strategy, least in (("levels", 20), ("best", 12)):
        less = spread([_total(one, "reference", "cpu") / _total(one, strategy, "cpu") for one in rounds])
        yield f"times less CPU than the reference, {strategy}", f"≥ {least}", decimal(less), met(less.median >= least)
    usual = [getattr(one, strategy) for one in results.rooms[USUAL] for strategy in STRATEGIES]
    for plans, most in ((usual, 500), (list(results.large.values()), 2000)):
        memory = max(one.memory for one in plans) / MB
        yield f"MB for {plans[0].rows_before:,} rows", f"≤ {most:,}", f"{memory:,.0f}", met(memory <= most)
    for what, seconds in (("writing", "writing"), ("in all", "wall")):
        faster = spread([_speed(one, "levels_applied", seconds) / _speed(one, "reference", seconds) for one in rounds])
        yield f"times the rows a second of the reference, {what}", "≥ 5", decimal(faster), met(faster.median >= 5)
    held = 1000 * max(max(getattr(one, way).locks) for each in rounds for one in each for way in OURS)
    yield "ms that a transaction holds locks, at most", "≤ 100", f"{held:.0f}", met(held <= 100)


def _rows(results: Results) -> Iterator[list[str]]:
    for name, rounds in results.rooms.items():
        yield [name, *_line(rounds[:1])]
    yield ["**all rooms**", *_line(results.all_rooms()[0])]


def _line(rooms: Sequence[Round]) -> list[str]:
    counts = (
        sum(one.best.rows_before for one in rooms),
        sum(one.reference.rows_after for one in rooms),
        sum(one.best.rows_after for one in rooms),
        sum(one.best.least for one in rooms),
    )
    before, reference, best, least = (f"{count:,}" for count in counts)
    return [before, reference, best, f"{_share(rooms):.2f}", least]


def _planning(results: Results) -> Iterator[list[str]]:
    named = {name: [[one] for one in rounds] for name, rounds in results.rooms.items()}
    for name, rounds in (named | {"**all rooms**": results.all_rooms()}).items():
        line = [name, decimal(spread([_total(one, "reference", "cpu") for one in rounds]))]
        for strategy in STRATEGIES:
            less = spread([_total(one, "reference", "cpu") / _total(one, strategy, "cpu") for one in rounds])
            line += [decimal(spread([_total(one, strategy, "cpu") for one in rounds])), f"1/{less.median:.0f}"]
        peaks = (max(getattr(one, way).memory for each in rounds for one in each) for way in STRATEGIES)
        yield [*line, *(f"{peak / MB:,.0f}" for peak in peaks)]
    for strategy, plan in results.large.items():
        yield [f"{plan.rows_before:,} rows, {strategy}", "", *_alone(strategy, plan)]


def _alone(strategy: str, plan: Plan) -> list[str]:
    seconds, memory = f"{plan.cpu:.2f}", f"{plan.memory / MB:,.0f}"
    return [seconds, "", "", "", memory, ""] if strategy == "levels" else ["", "", seconds, "", "", memory]


def _writing(results: Results) -> Iterator[list[str]]:
    for name, rounds in results.rooms.items():
        for way in ("reference", *OURS):
            done: list[Rewritten] = [getattr(one, way) for one in rounds]
            locks = sorted(1000 * lock for one in done for lock in one.locks)
            yield [
                name,
                way.removesuffix("_applied"),
                number(spread([one.moved / one.writing for one in done])),
                f"{median(len(one.locks) for one in done):,.0f}",
                f"{median(locks):.1f}",
                f"{locks[-1]:.0f}",
                decimal(spread([one.wall for one in done])),
            ]


def _share(rooms: Sequence[Round]) -> float:
    return sum(one.best.rows_after for one in rooms) / sum(one.reference.rows_after for one in rooms)


def _total(rooms: Sequence[Round], way: str, what: str) -> float:
    return float(sum(getattr(getattr(one, way), what) for one in rooms))


def _speed(rooms: Sequence[Round], way: str, seconds: str) -> float:
    return _total(rooms, way, "moved") / _total(rooms, way, seconds)
