"""Ways to copy a table; each has the methods ``copy``, ``clear`` and ``close``, and runs in a process of its own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CopyResult:
    """Rows copied, and bytes of the files written (0 without files)."""

    rows: int
    bytes: int
