"""A feed read beside an event loop, which waits while the database cannot be read."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from synapse_lakehouse.replication.feed import Feed, Heads
from synapse_lakehouse.replication.updates import MEMORY_ONLY, Gap, Missed, Progress, Source, Update
from synapse_lakehouse.source.errors import ReadFailed, SourceError

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 1.0

ONLY_IN_MEMORY: Final = "Synapse keeps this stream in memory only, and its tokens may have begun again"

_Read = TypeVar("_Read")


class Reader:
    """Reads ``feed`` in a thread of its own."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._thread = ThreadPoolExecutor(1, "replication-feed")
        self._was_read = False
        self._fails = False

    async def heads(self) -> Heads:
        """As :meth:`Feed.heads`.

        :raises SourceError: when the database cannot be reached, and never was.
        """
        return await self._read(self._feed.heads)

    async def page(self, source: Source, after: int, upto: int) -> tuple[list[Update], int]:
        """As :meth:`Feed.page`."""
        return await self._read(self._feed.page, source, after, upto)

    async def fill(self, missed: Missed, progress: Progress) -> AsyncIterator[Update | Gap]:
        """What the database still has of ``missed``, and then what was missed; moves ``progress`` along."""
        source = (missed.stream, missed.instance)
        after, found = missed.after, 0
        if missed.stream not in MEMORY_ONLY:
            while after < missed.upto:
                updates, after = await self.page(source, after, missed.upto)
                for update in updates:
                    if progress.update(update):
                        found += 1
                        yield replace(update, is_read=True)
            cause = "what has no row is another writer's, was never written, or was replaced or deleted since"
        else:
            cause = ONLY_IN_MEMORY
        progress.reach(source, missed.upto)
        yield Gap(missed.stream, missed.instance, missed.after, missed.upto, found, cause)

    async def close(self) -> None:
        """Close the connection to the database."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._feed.close)
        self._thread.shutdown()

    async def _read(self, call: Callable[..., _Read], *given: Any) -> _Read:
        while True:
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)
            except (ReadFailed, SourceError) as error:
                if not self._was_read:
                    raise
                if not self._fails:
                    log.warning("The database cannot be read, trying again: %s", error)
                self._fails = True
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self._was_read, self._fails = True, False
                return found
