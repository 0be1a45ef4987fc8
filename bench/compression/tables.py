"""Tables of the compression benchmark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.compression.compressors import Compression, Plan
from bench.report import Cell, Table
from bench.statistics import ratio, spread

STRATEGIES: Final = ("levels", "best")
_MB: Final = 1e6


@dataclass(frozen=True)
class Round:
    """Plans and compressions of one room by strategy, and the compression by the reference."""

    plans: Mapping[str, Plan]
    reference: Compression
    compressions: Mapping[str, Compression]


Rooms = Mapping[str, Sequence[Round]]
"""Rounds by room."""


def rows_table(rooms: Rooms) -> Table:
    """Return the rows before and after compression. They are the same in all rounds."""
    first_rounds = {name: [rounds[0]] for name, rounds in rooms.items()}
    first_rounds["all rooms"] = [rounds[0] for rounds in rooms.values()]
    rows = []
    for name, group in first_rounds.items():
        best = [measured.plans["best"] for measured in group]
        reference = sum(measured.reference.rows_after for measured in group)
        after = sum(plan.rows_after for plan in best)
        before, minimum = sum(plan.rows_before for plan in best), sum(plan.minimum_rows for plan in best)
        rows.append((name, before, reference, after, after / reference, minimum))
    return Table("Rows", ("room", "before", "reference", "best", "best / reference", "lower bound"), rows)


def plan_table(rooms: Rooms, large_plans: Mapping[str, Plan]) -> Table:
    """Return the CPU seconds of the reference and of the lakehouse's plans, and the memory of these plans."""
    all_rooms = list(map(list, zip(*rooms.values(), strict=True)))
    by_room = {name: [[measured] for measured in rounds] for name, rounds in rooms.items()} | {"all rooms": all_rooms}
    rows: list[list[Cell]] = []
    for name, rounds in by_room.items():
        reference = [sum(measured.reference.cpu for measured in group) for group in rounds]
        row: list[Cell] = [name, spread(reference)]
        for strategy in STRATEGIES:
            cpu = [sum(measured.plans[strategy].cpu for measured in group) for group in rounds]
            memory = max(measured.plans[strategy].memory for group in rounds for measured in group)
            row += [spread(cpu), ratio(reference, cpu), memory / _MB]
        rows.append(row)
    large: list[Cell] = [f"{large_plans['best'].rows_before:,} rows", None]
    for strategy in STRATEGIES:
        large += [large_plans[strategy].cpu, None, large_plans[strategy].memory / _MB]
    columns = ["room", "reference, CPU s"]
    for strategy in STRATEGIES:
        columns += [f"{strategy}, CPU s", f"reference / {strategy}", f"{strategy}, MB"]
    return Table("Planning", columns, [*rows, large])


def write_table(rooms: Rooms) -> Table:
    """Return the rates, transactions and lock times of the writes, and the seconds of the whole commands."""
    rows: list[list[Cell]] = []
    for name, rounds in rooms.items():
        for compressor, compressions in _by_compressor(rounds):
            locks = [1000 * seconds for compression in compressions for seconds in compression.lock_seconds]
            rates = [compression.rows_written / compression.write_seconds for compression in compressions]
            transactions = median(len(compression.lock_seconds) for compression in compressions)
            wall = spread([compression.wall for compression in compressions])
            rows.append([name, compressor, spread(rates), int(transactions), median(locks), max(locks), wall])
    columns = (
        "room", "compressor", "rows per second", "transactions", "locks held, ms", "longest lock, ms", "command, s"
    )  # fmt: skip
    return Table("Writing", columns, rows)


def write_ratio_table(rooms: Rooms) -> Table:
    """Return the rows per second of ``levels``, which writes the same rows as the reference, relative to it."""
    rows = []
    for name, field in (("writing", "write_seconds"), ("whole command", "wall")):
        levels, reference = [], []
        for group in zip(*rooms.values(), strict=True):
            levels.append(_rate([measured.compressions["levels"] for measured in group], field))
            reference.append(_rate([measured.reference for measured in group], field))
        rows.append((name, ratio(levels, reference)))
    return Table("Rows per second: levels divided by the reference", ("seconds", "all rooms"), rows)


def _by_compressor(rounds: Sequence[Round]) -> Iterator[tuple[str, list[Compression]]]:
    yield "reference", [measured.reference for measured in rounds]
    for strategy in STRATEGIES:
        yield strategy, [measured.compressions[strategy] for measured in rounds]


def _rate(compressions: Sequence[Compression], field: str) -> float:
    rows = sum(compression.rows_written for compression in compressions)
    return float(rows / sum(getattr(compression, field) for compression in compressions))
