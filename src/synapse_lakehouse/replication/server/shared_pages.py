"""Pages of rows as lines, which followers of the same rows share."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import format_line
from synapse_lakehouse.replication.protocol.stream_tokens import Source, Update
from synapse_lakehouse.replication.server.async_reader import BACKLOG, LIVE, Reader

SHARED_SECONDS: Final = 2.0
"""How long a page is shared. Rows may be replaced or deleted later, so it is no archive."""

SHARED_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Page:
    """Lines of the rows after a token. ``last``: the last token that has a row, None without one. ``upto``: up to where
    the page reaches."""

    lines: bytes
    last: int | None
    upto: int


@dataclass
class _Entry:
    task: asyncio.Task[Page]
    read_at: float | None = None


class SharedPages:
    """Reads each page once for all followers that ask for it at about the same time."""

    def __init__(self, reader: Reader, dialect: Dialect) -> None:
        self._reader = reader
        self._dialect = dialect
        self._entries: dict[tuple[Source, int], _Entry] = {}

    async def get(self, source: Source, after: int, upto: int, *, is_live: bool) -> Page:
        """Rows of ``source`` after the token ``after``: not beyond a position that the source had, and at least one
        token further.

        :param is_live: the follower had all rows before these, which are read before those of backlogs.
        :raises ReadError: as :meth:`Reader.page`.
        """
        self._discard()
        entry = self._entries.get((source, after))
        if entry is None:
            task = asyncio.create_task(self._read(source, after, upto, LIVE if is_live else BACKLOG))
            entry = self._entries[source, after] = _Entry(task)
            task.add_done_callback(lambda _: self._end(source, after, entry))
        # A follower that leaves does not take the page away from the others.
        return await asyncio.shield(entry.task)

    def forget(self) -> None:
        """Share no page that was read until now."""
        self._entries.clear()

    async def _read(self, source: Source, after: int, upto: int, priority: int) -> Page:
        updates, reached = await self._reader.page(source, after, upto, priority)
        lines = b"".join(format_line(row, self._dialect) + b"\n" for update in updates for row in _rdata(update))
        return Page(lines, updates[-1].token if updates else None, reached)

    def _end(self, source: Source, after: int, entry: _Entry) -> None:
        entry.read_at = monotonic()
        has_failed = entry.task.cancelled() or entry.task.exception() is not None
        if has_failed and self._entries.get((source, after)) is entry:
            del self._entries[source, after]

    def _discard(self) -> None:
        """Forget pages that are old, and the oldest of too many."""
        now, size = monotonic(), 0
        for key, entry in reversed(list(self._entries.items())):
            if entry.read_at is None or not entry.task.done():
                continue
            size += len(entry.task.result().lines)
            if now - entry.read_at > SHARED_SECONDS or size > SHARED_BYTES:
                del self._entries[key]


def _rdata(update: Update) -> Iterator[c.Rdata]:
    *others, last = update.rows
    source = (update.stream, update.instance)
    yield from (c.Rdata(*source, None, row) for row in others)
    yield c.Rdata(*source, update.token, last)
