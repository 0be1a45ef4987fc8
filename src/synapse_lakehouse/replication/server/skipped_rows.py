"""Log the rows that cannot be sent."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)

MAX_LOGGED: Final = 10
"""Rows that are logged per ``WINDOW_SECONDS``; further rows are counted."""

WINDOW_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 10_000


class SkippedRows:
    """Logs each skipped row once: its stream, stream ID, table and column, without its content.

    Each subscriber that reads the row's page skips the row again, so logged rows are remembered.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._window_start = clock()
        self._remembered: set[tuple[str, str, int]] = set()
        self._logged_count = 0
        self._unlogged_count = 0

    def add(self, stream: str, stream_id: int, table: str, column: str | None, reason: str) -> None:
        """Log a row, or only count it if there were many in this window."""
        key = (stream, table, stream_id)
        if key in self._remembered:
            return
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered.add(key)
        if self._clock() - self._window_start >= WINDOW_SECONDS:
            self._begin_window()
        if self._logged_count >= MAX_LOGGED:
            self._unlogged_count += 1
            return
        self._logged_count += 1
        log.warning(
            "A row cannot be sent and is skipped: stream %s, stream ID %d, table %s, column %s: %s. Subscribers"
            " continue without it. Correct the row in Synapse's database.",
            stream, stream_id, table, column or "unknown", reason,
        )  # fmt: skip

    def _begin_window(self) -> None:
        if self._unlogged_count:
            log.warning("%d further rows cannot be sent and were skipped", self._unlogged_count)
        self._window_start, self._logged_count, self._unlogged_count = self._clock(), 0, 0
