"""One TCP connection, for the client and the server: receive commands, send commands, and keep alive with PINGs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from time import time
from typing import Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.decode import parse_line
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import encode_line
from synapse_lakehouse.replication.protocol.framing import MAX_LINE_BYTES, LineSplitter

PING_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 15.0
"""Each side sends a command at least every ``PING_SECONDS``, and ends the connection after ``SILENCE_SECONDS`` without
a command. Synapse's documentation sets these values."""

_READ_BYTES: Final = 1 << 16
CLOSING_SECONDS: Final = 1.0


class ConnectionSilentError(LakehouseError):
    """The other side uses PINGs, but sent no command for too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no command was received for {seconds:g} s")


class ProtocolConnection:
    """Sends and receives commands in ``dialect``."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dialect: Dialect,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.dialect = dialect
        self._reader = reader
        self._writer = writer
        self._max_line_bytes = max_line_bytes
        self._sent_at = asyncio.get_running_loop().time()

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the send buffer."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, *commands: Command) -> None:
        """Send commands. Unsent bytes stay in memory; call :meth:`drain` to wait for them.

        A connection that is being closed sends no more commands.
        """
        self.send_lines(b"".join(encode_line(command, self.dialect) + b"\n" for command in commands))

    def send_lines(self, lines: bytes) -> None:
        """Like :meth:`send`, for commands that are encoded already."""
        if lines and not self._writer.is_closing():
            self._writer.write(lines)
            self._sent_at = asyncio.get_running_loop().time()

    def disable_buffering(self) -> None:
        """Let :meth:`drain` wait until the send buffer is empty."""
        self._writer.transport.set_write_buffer_limits(0)

    async def drain(self, seconds: float) -> None:
        """Wait while the send buffer is too full.

        :raises TimeoutError: if the buffer did not shrink for ``seconds``.
        :raises OSError: when the connection is lost.
        """
        while True:
            before = self.unsent_bytes
            try:
                async with asyncio.timeout(seconds):
                    return await self._writer.drain()
            except TimeoutError:
                if self.unsent_bytes >= before:
                    raise

    async def receive_commands(self, silence: float) -> AsyncIterator[Command]:
        """Yield commands until the other side closes. A client without PINGs may be a person, and has no time limit.

        :raises ConnectionSilentError: after ``silence`` seconds without a known command, once a PING was received.
        :raises MalformedCommandError, LineTooLongError: on a line that is not a command.
        :raises OSError: when the connection is lost.
        """
        loop, splitter = asyncio.get_running_loop(), LineSplitter(self._max_line_bytes)
        has_pinged, waited = False, 0.0
        while True:
            started = loop.time()
            try:
                async with asyncio.timeout(silence - waited if has_pinged else None):
                    data = await self._reader.read(_READ_BYTES)
            except TimeoutError:
                raise ConnectionSilentError(silence) from None
            if not data:
                return
            waited += loop.time() - started
            for line in splitter.feed(data):
                command = parse_line(line, self.dialect)
                if command is not None:
                    # An unknown command does not show that the other side still works.
                    waited = waited if isinstance(command, c.Unknown) else 0.0
                    has_pinged = has_pinged or isinstance(command, c.Ping)
                    yield command

    async def keep_alive(self, seconds: float, drain: Callable[[], Awaitable[None]] | None = None) -> None:
        """Send a PING after ``seconds`` without another command, until the connection is lost.

        :param drain: waits until the send buffer has room; by default without a time limit.
        """
        with suppress(OSError):
            while True:
                while (remaining := self._sent_at + seconds - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(remaining)
                self.send(create_ping())
                await (drain or self._writer.drain)()

    async def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Send the buffer, for at most ``seconds``, and close."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self._writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._writer.close()
        # A closed transport whose buffer has become empty cannot be aborted.
        if self.unsent_bytes:
            self._writer.transport.abort()


def create_ping() -> c.Ping:
    """Return a PING with the current time, as Synapse sends it."""
    return c.Ping(str(int(time() * 1000)))
