"""One TCP connection, from either side: commands in, commands out, and signs of life."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from time import time
from typing import Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.decode import parse
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import format_line
from synapse_lakehouse.replication.protocol.framing import LONGEST, Lines

PING_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 15.0
"""Each side sends a command at least this often, and gives up on the other after this long, as the documents ask."""

_PIECE: Final = 1 << 16
_CLOSING_SECONDS: Final = 1.0


class ConnectionSilentError(LakehouseError):
    """The other side sent a PING once, and then nothing for too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no command was heard for {seconds:g} s")


class Connection:
    """Speaks ``dialect``."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dialect: Dialect, longest: int = LONGEST
    ) -> None:
        """:param longest: bytes that a line may have."""
        self.dialect = dialect
        self._reader = reader
        self._writer = writer
        self._longest = longest
        self._sent_at = asyncio.get_running_loop().time()

    @property
    def waiting(self) -> int:
        """Bytes that the other side has not taken."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, *commands: Command) -> None:
        """Send commands; those that do not go out at once are held in memory until :meth:`drain`.

        Once the connection is being closed, nothing more is sent.
        """
        self.send_lines(b"".join(format_line(one, self.dialect) + b"\n" for one in commands))

    def send_lines(self, lines: bytes) -> None:
        """As :meth:`send`, commands that are lines already."""
        if lines and not self._writer.is_closing():
            self._writer.write(lines)
            self._sent_at = asyncio.get_running_loop().time()

    def hold_nothing(self) -> None:
        """Let :meth:`drain` wait until the other side has taken everything."""
        self._writer.transport.set_write_buffer_limits(0)

    async def drain(self, seconds: float) -> None:
        """Wait while too much is held.

        :raises TimeoutError: when the other side took nothing for ``seconds``.
        :raises OSError: when the connection is lost.
        """
        while True:
            before = self.waiting
            try:
                async with asyncio.timeout(seconds):
                    return await self._writer.drain()
            except TimeoutError:
                if self.waiting >= before:
                    raise

    async def received(self, silence: float) -> AsyncIterator[Command]:
        """Commands until the other side closes. Whoever never sends a PING may be a person, and is not timed.

        :param silence: seconds without a command that is known, after which :class:`ConnectionSilentError` is raised.
        :raises MalformedCommandError, LineTooLongError: on a line that is not a command.
        :raises OSError: when the connection is lost.
        """
        loop, lines = asyncio.get_running_loop(), Lines(self._longest)
        pinged, waited = False, 0.0
        while True:
            since = loop.time()
            try:
                async with asyncio.timeout(silence - waited if pinged else None):
                    data = await self._reader.read(_PIECE)
            except TimeoutError:
                raise ConnectionSilentError(silence) from None
            if not data:
                return
            waited += loop.time() - since
            for line in lines.feed(data):
                command = parse(line, self.dialect)
                if command is not None:
                    # A line that is no command of the protocol is no sign of life.
                    waited = waited if isinstance(command, c.Unknown) else 0.0
                    pinged = pinged or isinstance(command, c.Ping)
                    yield command

    async def keep_alive(self, seconds: float, drained: Callable[[], Awaitable[None]] | None = None) -> None:
        """Send a PING whenever nothing else was sent for ``seconds``, and none while too much is held.

        Ends when the connection is lost.

        :param drained: waits until there is room again, by default as long as that takes.
        """
        with suppress(OSError):
            while True:
                while (left := self._sent_at + seconds - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(left)
                self.send(ping())
                await (drained or self._writer.drain)()

    async def close(self) -> None:
        """Let go what is held, for a moment, and close."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._writer.close()
        # One that was closed with something held, and has let it go since, cannot be aborted any more.
        if self.waiting:
            self._writer.transport.abort()


def ping() -> c.Ping:
    """A PING with the time, as Synapse sends it."""
    return c.Ping(str(int(time() * 1000)))
