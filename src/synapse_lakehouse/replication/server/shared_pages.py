"""Cache pages of encoded rows for a moment, so that subscribers of the same rows share them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import encode_line
from synapse_lakehouse.replication.protocol.stream_tokens import Source, Update
from synapse_lakehouse.replication.server.async_reader import AsyncReader, Priority

SHARED_SECONDS: Final = 2.0
"""Seconds for which subscribers share a page after it was read. The time is short: rows may be replaced or deleted."""

SHARED_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class EncodedPage:
    """Encoded rows after a token.

    ``last``: the last token with a row, None without rows. ``upto``: the last token of the page's range.
    """

    lines: bytes
    last: int | None
    upto: int


@dataclass
class _Entry:
    task: asyncio.Task[EncodedPage]
    read_at: float | None = None


class SharedPages:
    """Reads each page once for all subscribers that request it at about the same time."""

    def __init__(self, reader: AsyncReader, dialect: Dialect, shared_seconds: float = SHARED_SECONDS) -> None:
        self._reader = reader
        self._dialect = dialect
        self._shared_seconds = shared_seconds
        self._entries: dict[tuple[Source, int], _Entry] = {}

    async def get(self, source: Source, after: int, upto: int, *, is_live: bool) -> EncodedPage:
        """Return the page of ``source`` after the token ``after``: at least one token, and no token after ``upto``.

        :param is_live: the subscriber is not behind, so its page is read before the pages of backlogs.
        :raises ReadError: as :meth:`AsyncReader.read_page`.
        """
        self._discard_old()
        entry = self._entries.get((source, after))
        if entry is None:
            priority = Priority.LIVE if is_live else Priority.BACKLOG
            task = asyncio.create_task(self._read(source, after, upto, priority))
            entry = self._entries[source, after] = _Entry(task)
            task.add_done_callback(lambda _: self._mark_read(source, after, entry))
        # The shield lets others receive the page if this subscriber disconnects.
        return await asyncio.shield(entry.task)

    def clear(self) -> None:
        """Discard all pages."""
        self._entries.clear()

    async def _read(self, source: Source, after: int, upto: int, priority: Priority) -> EncodedPage:
        updates, page_end = await self._reader.read_page(source, after, upto, priority)
        lines = b"".join(encode_line(row, self._dialect) + b"\n" for update in updates for row in _rdata(update))
        return EncodedPage(lines, updates[-1].token if updates else None, page_end)

    def _mark_read(self, source: Source, after: int, entry: _Entry) -> None:
        entry.read_at = monotonic()
        has_failed = entry.task.cancelled() or entry.task.exception() is not None
        if has_failed and self._entries.get((source, after)) is entry:
            del self._entries[source, after]

    def _discard_old(self) -> None:
        """Discard old pages, and the oldest pages beyond ``SHARED_BYTES``."""
        now, size = monotonic(), 0
        for key, entry in reversed(list(self._entries.items())):
            if entry.read_at is None or not entry.task.done():
                continue
            size += len(entry.task.result().lines)
            if now - entry.read_at > self._shared_seconds or size > SHARED_BYTES:
                del self._entries[key]


def _rdata(update: Update) -> Iterator[c.Rdata]:
    *rows, last = update.rows
    source = (update.stream, update.instance)
    yield from (c.Rdata(*source, None, row) for row in rows)
    yield c.Rdata(*source, update.token, last)
