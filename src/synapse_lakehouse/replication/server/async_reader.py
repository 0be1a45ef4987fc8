"""Read the database in a thread, for an event loop. Reads wait until the database is available."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, Final, TypeVar

from synapse_lakehouse.postgres.errors import ReadError, SourceError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.commands import Position
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS
from synapse_lakehouse.replication.protocol.stream_tokens import (
    MEMORY_ONLY_STREAMS,
    Gap,
    MissedRange,
    Progress,
    Source,
    Update,
)
from synapse_lakehouse.replication.server.stream_positions import StreamPositions
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader

log = get_printable_logger(__name__)

RETRY_SECONDS: Final = 1.0

STANDBY_WAIT_SECONDS: Final = 10.0
"""Maximum wait of a read for a standby that has not replayed an announced token."""

_POLL_SECONDS: Final = 0.2


class Priority(IntEnum):
    """The order of waiting reads: positions, new rows, rows of subscribers that are behind."""

    POSITIONS = 0
    LIVE = 1
    BACKLOG = 2


STREAM_IN_MEMORY: Final = "Synapse keeps this stream in memory only, and its tokens may have restarted"

NO_ROW: Final = "a token without a row belongs to another writer, was never written, or was replaced or deleted since"
NO_TABLE: Final = "the catalogue does not contain this stream, so the table with its rows is unknown"
STANDBY_BEHIND: Final = (
    "the database is a standby and may not have replayed all rows: a token without a row may get one"
)
INCOMPLETE: Final = "it began before the tap listened, so rows of it may be missing: "

_Result = TypeVar("_Result")


class AsyncReader:
    """Calls ``reader`` in a separate thread, one call at a time.

    :ivar is_reading: False while the reader retries after a failure.
    """

    def __init__(self, reader: DatabaseReader, standby_wait_seconds: float = STANDBY_WAIT_SECONDS) -> None:
        self._reader = reader
        self._standby_wait_seconds = standby_wait_seconds
        self._positions: StreamPositions | None = None
        self._standby_positions: dict[Source, int] = {}
        self._thread = ThreadPoolExecutor(1, "replication-reader")
        self._was_read = False
        self._is_busy = False
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._number = count()
        self.is_reading = True

    async def read_positions(self) -> StreamPositions:
        """Like :meth:`DatabaseReader.read_positions`.

        :raises SourceError: if the database could never be reached.
        """
        self._positions = await self.call(Priority.POSITIONS, self._reader.read_positions)
        return self._positions

    async def has_gone_back(self, command: Position, progress: Progress) -> bool:
        """Return whether a writer announces a lower position because the database was restored or failed over.

        A lower position alone is no proof, because tokens may repeat. The old position must also be above all allocated
        tokens of the database.
        """
        source = (command.stream, command.instance)
        position = progress.positions.get(source, command.token)
        if position <= command.token or command.stream in MEMORY_ONLY_STREAMS:
            return False
        return (await self.read_positions()).is_never_allocated(source, position)

    async def read_page(
        self, source: Source, after: int, upto: int, priority: Priority = Priority.BACKLOG
    ) -> tuple[list[Update], int]:
        """Like :meth:`DatabaseReader.read_page`."""
        return await self.call(priority, self._reader.read_page, source, after, upto)

    async def read_missed(self, missed: MissedRange, progress: Progress) -> AsyncIterator[Update | Gap]:
        """Yield the tokens of ``missed`` that the database still has, then the gap; move ``progress``."""
        source = (missed.stream, missed.instance)
        after, recovered = missed.after, 0
        if missed.stream in ROW_SCHEMAS:
            cause = await self._wait_for_replay(source, missed.upto)
            while after < missed.upto:
                updates, after = await self.read_page(source, after, missed.upto)
                for update in updates:
                    if progress.accept(update):
                        recovered += 1
                        yield replace(update, is_read=True)
        else:
            cause = STREAM_IN_MEMORY if missed.stream in MEMORY_ONLY_STREAMS else NO_TABLE
        progress.advance(source, missed.upto)
        yield Gap(missed.stream, missed.instance, missed.after, missed.upto, recovered, cause)

    async def complete_first_token(self, received: Update, progress: Progress) -> AsyncIterator[Update | Gap]:
        """Yield the missed tokens before ``received``, then ``received``.

        ``received`` is the first token after an interruption. Some of its rows may have been announced before the tap
        listened. If the database has more rows of this token, the database's rows replace the received rows.
        """
        source, before = (received.stream, received.instance), received.token - 1
        position = progress.start_of(source)
        if position is not None and position < before:
            async for item in self.read_missed(MissedRange(*source, position, before), progress):
                yield item
        cause, complete = "", received
        if received.stream in ROW_SCHEMAS and (position is None or position <= before):
            cause = await self._wait_for_replay(source, received.token)
            updates, _ = await self.read_page(source, before, received.token)
            counts = [len(update.rows) for update in updates]
            if counts and counts[0] > len(received.rows):
                complete = replace(updates[0], is_read=True)
            cause = "" if counts and counts[0] >= len(received.rows) else cause
        if progress.accept(complete):
            yield complete
            if cause:
                yield Gap(*source, before, received.token, 0, INCOMPLETE + cause)

    async def close(self) -> None:
        """Close the connection to the database."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._reader.close)
        self._thread.shutdown()

    async def _wait_for_replay(self, source: Source, upto: int) -> str:
        """Wait until a standby has replayed the announced token ``upto``.

        A primary needs no wait. A standby may never reach ``upto``, because an idle writer announces tokens that it
        does not store. So there is only one wait for each position of a standby.

        :returns: the reason why tokens up to ``upto`` may have no rows.
        """
        started = monotonic()
        if self._positions and not self._positions.is_standby:
            return NO_ROW
        while (positions := await self.read_positions()).is_standby and (latest := positions.latest(source)) < upto:
            is_timed_out = monotonic() - started >= self._standby_wait_seconds
            if self._standby_positions.get(source) == latest or is_timed_out:
                self._standby_positions[source] = latest
                return STANDBY_BEHIND
            await asyncio.sleep(_POLL_SECONDS)
        return NO_ROW

    async def call(self, priority: Priority, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Call ``function`` in the thread, highest priority first; retry while the database cannot be read."""
        while True:
            await self._take_turn(priority)
            try:
                result = await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
            except (ReadError, SourceError) as error:
                if not self._was_read:
                    raise
                if self.is_reading:
                    log.warning("The database cannot be read, trying again: %s", error)
                self.is_reading = False
            else:
                self._was_read = self.is_reading = True
                return result
            finally:
                self._end_turn()
            await asyncio.sleep(RETRY_SECONDS)

    async def _take_turn(self, priority: Priority) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (priority, next(self._number), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end_turn()
            raise

    def _end_turn(self) -> None:
        while self._waiting:
            _, _, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
