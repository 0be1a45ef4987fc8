"""Turn commands into items: complete tokens, gaps with the rows read for them, and other commands."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import uniform
from time import monotonic
from typing import Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import PING_SECONDS, SILENCE_SECONDS
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY_STREAMS, Gap, Progress, Update
from synapse_lakehouse.replication.server.async_reader import STREAM_IN_MEMORY, AsyncReader

Item = Update | Gap | Command
"""A complete token, tokens that were not received, or another command."""


@dataclass(frozen=True)
class ClientTiming:
    """Times in seconds. ``ping``: time between PINGs. ``silence``: longest time without a command.

    ``first``: delay before the first retry. The delay doubles with each retry, up to ``longest``.
    """

    ping: float = PING_SECONDS
    silence: float = SILENCE_SECONDS
    first: float = 1.0
    longest: float = 60.0

    def delay_before(self, attempt: int) -> float:
        """Return the seconds to wait before an attempt; the first attempt after a success is number 1."""
        return uniform(0.5, 1.0) * min(self.longest, self.first * 2.0 ** min(attempt - 1, 20))  # noqa: S311


DEFAULT_TIMING: Final = ClientTiming()


class ConnectionAttempts:
    """Counts failed connections in a row, and waits between them.

    A connection succeeded if it received rows, or lasted for the longest delay.
    """

    def __init__(self, timing: ClientTiming) -> None:
        self._timing = timing
        self._failures = 0
        self._started = 0.0

    def start(self) -> None:
        """Record the start of a connection."""
        self._started = monotonic()

    def record_item(self, item: Item) -> None:
        """Reset the count of failures if ``item`` has rows."""
        if isinstance(item, Update):
            self._failures = 0

    async def wait(self) -> None:
        """Wait before the next attempt.

        :raises asyncio.CancelledError: if the task was cancelled, even if another error hid the cancellation.
        """
        task = asyncio.current_task()
        if task and task.cancelling():
            raise asyncio.CancelledError
        if monotonic() - self._started >= self._timing.longest:
            self._failures = 0
        self._failures += 1
        await asyncio.sleep(self._timing.delay_before(self._failures))


async def process_command(command: Command, progress: Progress, reader: AsyncReader) -> AsyncIterator[Item]:
    """Yield the items of ``command``. If it shows that tokens were missed, read them from the database.

    :raises EndlessTokenError: if a token never ends.
    """
    # The sender of ERROR closes the connection.
    progress.is_connected = not isinstance(command, c.Error)
    match command:
        case c.Rdata():
            if missed := progress.missed_in_memory(command):
                yield Gap(missed.stream, missed.instance, missed.after, missed.upto, 0, STREAM_IN_MEMORY)
            is_in_database = command.instance is not None and command.stream not in MEMORY_ONLY_STREAMS
            if progress.is_first_token(command) and is_in_database:
                if received := progress.collect_row(command):
                    async for item in reader.complete_first_token(received, progress):
                        yield item
            elif update := progress.add_row(command):
                yield update
        case c.Position():
            if await reader.has_gone_back(command, progress):
                yield progress.rewind((command.stream, command.instance), command.token)
            missed = progress.receive_position(command)
            yield command
            if missed:
                async for item in reader.read_missed(missed, progress):
                    yield item
        case _:
            yield command
