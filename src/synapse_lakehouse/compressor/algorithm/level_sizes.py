"""Levels of the strategy ``levels``, as in the settings and as saved. This module imports no large package."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ChainLevel:
    """A chain of up to ``size`` groups. If it is full, the next level gets a group. ``head``: ID of its last group."""

    size: int
    length: int = 0
    head: int | None = None


Levels = tuple[ChainLevel, ...]

_LARGEST = 2**31 - 1
"""The maximum of an integer column of ``state_compressor_state``."""


def parse_levels(text: str) -> Levels:
    """Return empty levels of the given sizes, such as ``100,50,25``.

    :raises ValueError: unless ``text`` is a list of positive integers, separated by commas, that fit into the tables of
        Synapse's compressor.
    """
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isascii() and size.isdigit() and 0 < int(size) <= _LARGEST for size in sizes):
        raise ValueError(f"levels are positive whole numbers, separated by commas, such as 100,50,25, not {text!r}")
    return tuple(ChainLevel(int(size)) for size in sizes)


def levels_from_rows(rows: Iterable[tuple[int, int, int, int | None]]) -> Levels:
    """Return levels from a room's rows of ``state_compressor_state``: number, max_size, current_length, current_head.

    :raises ValueError: for rows that no compressor can have written.
    """
    levels = []
    for expected, (number, size, length, head) in enumerate(sorted(rows, key=lambda row: row[0]), start=1):
        if number != expected:
            raise ValueError(f"level {expected} is missing or exists twice")
        if not 0 <= length <= size or size < 1 or (head is None and length):
            raise ValueError(f"level {number} has {length} of {size} groups and the head {head}")
        levels.append(ChainLevel(size, length, head))
    return tuple(levels)


def reset_levels(saved: Levels, configured: Levels) -> Levels:
    """Return the levels after a skipped chunk: the configured levels. Further saved levels are unchanged."""
    return configured + saved[len(configured) :]
