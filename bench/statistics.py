"""Medians, ranges and ratios of repeated measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.results import DECODED, ENCODED, OURS, SENT, Results, Sample


@dataclass(frozen=True)
class Spread:
    """The median of repeated measurements, and the smallest and the largest."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(median(values), min(values), max(values))


def rate(samples: Sequence[Sample], contender: str, table: str | None = None) -> Spread:
    """Rows a second of a contender, round by round: of one table, or of all one after the other."""
    return spread(
        [
            sum(one.rows for one in copies) / sum(one.cost.wall for one in copies)
            for copies in by_round(samples, contender, table)
        ]
    )


def ratio(samples: Sequence[Sample], ours: str, theirs: str, what: Callable[[Sample], float]) -> Spread:
    """How many times as much of ``what`` a peer needs for all tables, compared inside each round."""
    return spread(
        [
            sum(map(what, peers)) / sum(map(what, own))
            for own, peers in zip(by_round(samples, ours), by_round(samples, theirs), strict=True)
        ]
    )


def by_round(samples: Sequence[Sample], contender: str, table: str | None = None) -> list[list[Sample]]:
    """A contender's samples, of one table or of all, one list a round."""
    rounds = sorted({one.round for one in samples})
    return [
        [one for one in samples if one.round == number and one.contender == contender and table in (None, one.table)]
        for number in rounds
    ]


def cost_a_row(results: Results, table: str) -> dict[str, float]:
    """CPU microseconds a row of our whole copy of ``table``, by stage; what no stage explains comes last."""

    def alone(stage: str, what: str) -> float:
        repeats = [one for one in results.stages if (one.table, one.name) == (table, stage)]
        return float(median(getattr(one, what) / one.rows for one in repeats)) * 1e6

    copies = [one for one in results.samples if (one.table, one.contender) == (table, OURS)]
    whole = median((one.cost.cpu + one.cost.source_cpu) / one.rows for one in copies) * 1e6
    parts = {
        "PostgreSQL": alone(SENT, "source_cpu"),
        "ADBC": alone(DECODED, "cpu"),
        "Parquet": alone(ENCODED, "cpu"),
    }
    return parts | {"everything else": max(whole - sum(parts.values()), 0.0)}
