"""Ways to copy a table, each to be run in a process of its own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Copied:
    """Rows that were copied, and bytes of the files that hold them (0 where nothing is kept)."""

    rows: int
    bytes: int
