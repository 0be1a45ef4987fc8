"""Rows that cannot be sent, named in the log."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)

MOST_NAMED: Final = 10
"""Rows that are named in ``WINDOW_SECONDS``; further ones are counted."""

WINDOW_SECONDS: Final = 60.0
_MOST_REMEMBERED: Final = 10_000


class SkippedRows:
    """Names each skipped row once: its stream, stream ID, table and column, and nothing of its content.

    Every follower that reads the row's page again skips it again, so the rows that were named are remembered.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._remembered: set[tuple[str, str, int]] = set()
        self._named = 0
        self._counted = 0

    def add(self, stream: str, stream_id: int, table: str, column: str | None, reason: str) -> None:
        """Name a row, or count it if there were many lately."""
        key = (stream, table, stream_id)
        if key in self._remembered:
            return
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered.add(key)
        if self._clock() - self._since >= WINDOW_SECONDS:
            self._begin_window()
        if self._named >= MOST_NAMED:
            self._counted += 1
            return
        self._named += 1
        log.warning(
            "A row cannot be sent and is skipped: stream %s, stream ID %d, table %s, column %s: %s. Followers"
            " go on without it. Correct the row in Synapse's database.",
            stream, stream_id, table, column or "unknown", reason,
        )  # fmt: skip

    def _begin_window(self) -> None:
        if self._counted:
            log.warning("%d further rows cannot be sent and were skipped", self._counted)
        self._since, self._named, self._counted = self._clock(), 0, 0
