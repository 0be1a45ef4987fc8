"""A feed read beside an event loop, which waits while the database cannot be read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, Final, TypeVar

from synapse_lakehouse.postgres.errors import ReadError, SourceError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.commands import Position
from synapse_lakehouse.replication.protocol.row_schemas import SHAPES
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY, Gap, Missed, Progress, Source, Update
from synapse_lakehouse.replication.server.stream_reader import Feed, Heads

log = get_printable_logger(__name__)

AGAIN_SECONDS: Final = 1.0

LAG_SECONDS: Final = 10.0
"""How long a standby is waited for that has not replayed what was announced."""

_LOOK_SECONDS: Final = 0.2

POSITIONS, LIVE, BACKLOG = range(3)
"""What is read first of what waits: positions, rows that just came, rows of followers that are behind."""

ONLY_IN_MEMORY: Final = "Synapse keeps this stream in memory only, and its tokens may have begun again"

NO_ROW: Final = "what has no row is another writer's, was never written, or was replaced or deleted since"
NO_TABLE: Final = "the catalogue does not know this stream, so nobody knows which table has its rows"
NOT_THAT_FAR: Final = "the database, a standby, is not known to be that far: what has no row may still get one"
CUT: Final = "it began when nobody listened, so rows of it may be missing: "

_Read = TypeVar("_Read")


class Reader:
    """Reads ``feed`` in a thread of its own.

    :ivar is_reading: False while it tries again after a failure.
    """

    def __init__(self, feed: Feed, lag_seconds: float = LAG_SECONDS) -> None:
        """:param lag_seconds: how long a standby is waited for."""
        self._feed = feed
        self._lag_seconds = lag_seconds
        self._heads: Heads | None = None
        self._stood_at: dict[Source, int] = {}
        self._thread = ThreadPoolExecutor(1, "replication-feed")
        self._was_read = False
        self._is_busy = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = count()
        self.is_reading = True

    async def heads(self) -> Heads:
        """As :meth:`Feed.heads`.

        :raises SourceError: when the database cannot be reached, and never was.
        """
        self._heads = await self._read(POSITIONS, self._feed.heads)
        return self._heads

    async def went_back(self, command: Position, progress: Progress) -> bool:
        """Whether a writer announces a lower position than it did, as the database went back.

        Other reasons are legal where tokens may repeat, so the database decides.
        """
        source = (command.stream, command.instance)
        position = progress.positions.get(source, command.token)
        if position <= command.token or command.stream in MEMORY_ONLY:
            return False
        return (await self.heads()).are_behind(source, position)

    async def page(self, source: Source, after: int, upto: int, priority: int = BACKLOG) -> tuple[list[Update], int]:
        """As :meth:`Feed.page`. What has a lower ``priority`` number is read first."""
        return await self._read(priority, self._feed.page, source, after, upto)

    async def fill(self, missed: Missed, progress: Progress) -> AsyncIterator[Update | Gap]:
        """What the database still has of ``missed``, and then what was missed; moves ``progress`` along."""
        source = (missed.stream, missed.instance)
        after, found = missed.after, 0
        if missed.stream in SHAPES:
            cause = await self._waited(source, missed.upto)
            while after < missed.upto:
                updates, after = await self.page(source, after, missed.upto)
                for update in updates:
                    if progress.update(update):
                        found += 1
                        yield replace(update, is_read=True)
        else:
            cause = ONLY_IN_MEMORY if missed.stream in MEMORY_ONLY else NO_TABLE
        progress.reach(source, missed.upto)
        yield Gap(missed.stream, missed.instance, missed.after, missed.upto, found, cause)

    async def first(self, heard: Update, progress: Progress) -> AsyncIterator[Update | Gap]:
        """What was announced before ``heard``, the first token after an interruption, and then it; moves ``progress``.

        Rows of its own may have been announced before anybody listened, so what the database has of it is given where
        that is more.
        """
        source, before = (heard.stream, heard.instance), heard.token - 1
        position = progress.begin(source)
        if position is not None and position < before:
            async for item in self.fill(Missed(*source, position, before), progress):
                yield item
        cause, whole = "", heard
        if heard.stream in SHAPES and (position is None or position <= before):
            cause = await self._waited(source, heard.token)
            updates, _ = await self.page(source, before, heard.token)
            counts = [len(update.rows) for update in updates]
            if counts and counts[0] > len(heard.rows):
                whole = replace(updates[0], is_read=True)
            cause = "" if counts and counts[0] >= len(heard.rows) else cause
        if progress.update(whole):
            yield whole
            if cause:
                yield Gap(*source, before, heard.token, 0, CUT + cause)

    async def close(self) -> None:
        """Close the connection to the database."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._feed.close)
        self._thread.shutdown()

    async def _waited(self, source: Source, upto: int) -> str:
        """Why there may be tokens without rows up to ``upto``, which was announced; waits for a standby.

        A primary has what its writers announce. A writer that does not write announces what others wrote, and has no
        position of its own there: it is waited for once.
        """
        since = monotonic()
        if self._heads and not self._heads.is_standby:
            return NO_ROW
        while (heads := await self.heads()).is_standby and (at := heads.now(source)) < upto:
            if self._stood_at.get(source) == at or monotonic() - since >= self._lag_seconds:
                self._stood_at[source] = at
                return NOT_THAT_FAR
            await asyncio.sleep(_LOOK_SECONDS)
        return NO_ROW

    async def _read(self, priority: int, call: Callable[..., _Read], *given: Any) -> _Read:
        while True:
            await self._take_turn(priority)
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)
            except (ReadError, SourceError) as error:
                if not self._was_read:
                    raise
                if self.is_reading:
                    log.warning("The database cannot be read, trying again: %s", error)
                self.is_reading = False
            else:
                self._was_read = self.is_reading = True
                return found
            finally:
                self._end_turn()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _take_turn(self, priority: int) -> None:
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
