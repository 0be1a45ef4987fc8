"""Progress and throughput of a table's copy."""

import time
from dataclasses import dataclass
from datetime import timedelta

from synapse_lakehouse.postgres.rows.copy_to_parquet import WrittenPart


@dataclass(frozen=True)
class CopyProgress:
    """Pages copied out of ``total_pages``, and the rows, bytes and seconds of the copy so far.

    ``expected_rows``: rows of the table, if they are counted already.
    """

    total_pages: int
    expected_rows: int | None = None
    pages: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    began: float | None = None

    def advance(
        self, written: WrittenPart, pages: int, expected: int | None = None, now: float | None = None
    ) -> "CopyProgress":
        """Return the progress with ``pages`` more pages copied; ``now`` is a time of the monotonic clock."""
        now = time.monotonic() if now is None else now
        began = now - written.seconds if self.began is None else min(self.began, now - written.seconds)
        rows, size = self.rows + written.rows, self.bytes + written.bytes
        return CopyProgress(self.total_pages, expected, self.pages + pages, rows, size, now - began, began)

    @property
    def is_finished(self) -> bool:
        """Whether all pages are copied."""
        return self.pages >= self.total_pages

    def __str__(self) -> str:
        size, speed = f"{self.bytes / 1e6:,.1f} MB", f"{self.rows / max(self.seconds, 1e-3):,.0f} rows/s"
        if self.is_finished:
            return f"{self.rows:,} rows, {size}, {speed}"
        # The estimate uses pages: their number is known before the rows are counted, and all take about the same time.
        inverse_share = self.total_pages / self.pages
        rows = f"{self.expected_rows:,}" if self.expected_rows else f"about {self.rows * inverse_share:,.0f}"
        remaining = timedelta(seconds=round(self.seconds * (inverse_share - 1)))
        return f"{self.rows:,} of {rows} rows, {size}, {speed}, {remaining} left"
