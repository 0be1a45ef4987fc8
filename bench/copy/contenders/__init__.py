"""Ways to copy a table. Each has the methods ``copy``, ``clear`` and ``close``, and runs in a separate process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CopyResult:
    """Number of copied rows, and size in bytes of the written files (0 without files)."""

    rows: int
    bytes: int
