"""What a follower is given: whole tokens, gaps and what filled them, and every other command."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import uniform
from time import monotonic
from typing import Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import PING_SECONDS, SILENCE_SECONDS
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY, Gap, Missed, Progress, Update
from synapse_lakehouse.replication.server.async_reader import ONLY_IN_MEMORY, Reader

Item = Update | Gap | Command
"""Whole tokens; tokens that were not heard; every other command as it came."""


@dataclass(frozen=True)
class Patience:
    """Seconds: between signs of life, and before another attempt, which doubles from ``first`` to ``most``."""

    ping: float = PING_SECONDS
    silence: float = SILENCE_SECONDS
    first: float = 1.0
    most: float = 60.0

    def before(self, attempt: int) -> float:
        """How long to wait before an attempt; the first one after a success is number 1."""
        return uniform(0.5, 1.0) * min(self.most, self.first * 2.0 ** min(attempt - 1, 20))  # noqa: S311


DOCUMENTED: Final = Patience()


class Attempts:
    """Connections, one after the other, and how long to wait between them.

    One was a success if it brought rows, or held for as long as is waited at most.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._failed = 0
        self._since = 0.0

    def begin(self) -> None:
        """A connection is tried."""
        self._since = monotonic()

    def brought(self, item: Item) -> None:
        """It brought something."""
        if isinstance(item, Update):
            self._failed = 0

    async def wait(self) -> None:
        """Wait before the next; where this task is to end, end it: an error in closing may have hidden that."""
        task = asyncio.current_task()
        if task and task.cancelling():
            raise asyncio.CancelledError
        if monotonic() - self._since >= self._patience.most:
            self._failed = 0
        self._failed += 1
        await asyncio.sleep(self._patience.before(self._failed))


async def items(command: Command, progress: Progress, reader: Reader | None) -> AsyncIterator[Item]:
    """What ``command`` brings; what it shows to be missed is read from a database.

    :raises EndlessTokenError: when a token never ends.
    """
    # Whoever says ERROR closes the connection.
    progress.is_connected = not isinstance(command, c.Error)
    match command:
        case c.Rdata():
            if unheard := progress.unheard(command):
                yield Gap(*unheard, 0, ONLY_IN_MEMORY)
            has_rows = command.instance is not None and command.stream not in MEMORY_ONLY
            if progress.is_first(command) and reader and has_rows:
                if heard := progress.gather(command):
                    async for item in reader.first(heard, progress):
                        yield item
            elif update := progress.rdata(command):
                yield update
        case c.Position():
            if reader and await reader.went_back(command, progress):
                yield progress.went_back((command.stream, command.instance), command.token)
            missed = progress.position(command)
            yield command
            if missed:
                async for item in fill(missed, progress, reader):
                    yield item
        case _:
            yield command


async def fill(missed: Missed, progress: Progress, reader: Reader | None) -> AsyncIterator[Update | Gap]:
    """What was missed, as far as a database has it, and then the gap; moves ``progress`` along."""
    if reader:
        async for item in reader.fill(missed, progress):
            yield item
    else:
        progress.reach((missed.stream, missed.instance), missed.upto)
        yield Gap(missed.stream, missed.instance, missed.after, missed.upto, 0, "there is no database to read it from")
