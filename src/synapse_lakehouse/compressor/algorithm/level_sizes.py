"""The levels that groups are hung into, as settings give them and as they are saved. Imports nothing heavy."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ChainLevel:
    """A chain that takes up to ``size`` groups before the next level gets one. ``head``: id of its latest group."""

    size: int
    length: int = 0
    head: int | None = None


Levels = tuple[ChainLevel, ...]

_LARGEST = 2**31 - 1
"""What a column of ``state_compressor_state`` holds."""


def parse_levels(text: str) -> Levels:
    """Empty levels of the given sizes, the most granular first, such as ``100,50,25``.

    :raises ValueError: unless ``text`` is one or more positive whole numbers with commas between them, as large as the
        reference's tables hold.
    """
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isascii() and size.isdigit() and 0 < int(size) <= _LARGEST for size in sizes):
        raise ValueError(f"levels are positive whole numbers with commas between them, such as 100,50,25, not {text!r}")
    return tuple(ChainLevel(int(size)) for size in sizes)


def levels_from_rows(rows: Iterable[tuple[int, int, int, int | None]]) -> Levels:
    """Levels from the rows of one room in ``state_compressor_state``: number, max_size, current_length, current_head.

    :raises ValueError: for rows that no compressor writes.
    """
    levels = []
    for expected, (number, size, length, head) in enumerate(sorted(rows, key=lambda row: row[0]), start=1):
        if number != expected:
            raise ValueError(f"saved level {expected} is missing or there twice")
        if not 0 <= length <= size or size < 1 or (head is None and length):
            raise ValueError(f"saved level {number} has {length} of {size} groups and the head {head}")
        levels.append(ChainLevel(size, length, head))
    return tuple(levels)


def reset_levels(saved: Levels, configured: Levels) -> Levels:
    """The levels after a chunk that was skipped: those configured, and saved ones beyond their number as they were."""
    return configured + saved[len(configured) :]
