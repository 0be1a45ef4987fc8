"""How far the copy of a table is, and how fast."""

import time
from dataclasses import dataclass
from datetime import timedelta

from synapse_lakehouse.postgres.rows.read import WrittenPart


@dataclass(frozen=True)
class CopyProgress:
    """Pages of a table that are done, of how many; the rows and bytes that were written of them, in some seconds.

    ``expected``: rows in all, if they were counted already.
    """

    of: int
    expected_rows: int | None = None
    pages: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    began: float | None = None

    def after(
        self, written: WrittenPart, pages: int, expected: int | None = None, now: float | None = None
    ) -> "CopyProgress":
        """The pace with ``pages`` more of the table ``written`` ``now``, by the monotonic clock."""
        now = time.monotonic() if now is None else now
        began = now - written.seconds if self.began is None else min(self.began, now - written.seconds)
        rows, size = self.rows + written.rows, self.bytes + written.bytes
        return CopyProgress(self.of, expected, self.pages + pages, rows, size, now - began, began)

    @property
    def is_finished(self) -> bool:
        """Whether nothing of the table is left to read."""
        return self.pages >= self.of

    def __str__(self) -> str:
        size, speed = f"{self.bytes / 1e6:,.1f} MB", f"{self.rows / max(self.seconds, 1e-3):,.0f} rows/s"
        if self.is_finished:
            return f"{self.rows:,} rows, {size}, {speed}"
        # By pages, which are known before rows are counted, and take about the same time each.
        whole = self.of / self.pages
        rows = f"{self.expected_rows:,}" if self.expected_rows else f"about {self.rows * whole:,.0f}"
        left = timedelta(seconds=round(self.seconds * (whole - 1)))
        return f"{self.rows:,} of {rows} rows, {size}, {speed}, {left} left"
