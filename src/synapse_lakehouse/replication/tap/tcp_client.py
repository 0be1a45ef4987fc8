"""Follows a server of the protocol over TCP, in either dialect, over any number of connections."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import Connection, ConnectionSilentError, ping
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.framing import LineTooLongError
from synapse_lakehouse.replication.protocol.stream_tokens import EndlessTokenError, Progress
from synapse_lakehouse.replication.server.async_reader import Reader
from synapse_lakehouse.replication.tap.follower import DOCUMENTED, Attempts, Item, Patience, items

log = get_printable_logger(__name__)

_SHOWN: Final = 200


class WrongServerError(LakehouseError):
    """The server belongs to another homeserver than the one that was asked for."""


class ConnectionClosedError(LakehouseError):
    """The server ended the connection."""


class ProtocolViolationError(LakehouseError):
    """The server does not keep to the protocol."""


@dataclass(frozen=True)
class Address:
    """Where a server is, how it speaks, and which homeserver it must belong to."""

    host: str
    port: int
    dialect: Dialect
    server_name: str


async def follow(
    address: Address,
    progress: Progress,
    *,
    streams: Sequence[str] = (),
    name: str = "synapse-lakehouse",
    reader: Reader | None = None,
    patience: Patience = DOCUMENTED,
) -> AsyncGenerator[Item, None]:
    """Everything the server tells, without end. Connects again whenever the connection ends.

    ``progress`` says where to go on, and moves with every item before it is given: whoever keeps its positions together
    with the items gets each token once, also after starting again.

    :param streams: what to ask for in the dialect of tokens; a stream without a position is followed from now on.
    :param reader: a database that has what is missed in the dialect of instances.
    :raises WrongServerError: when the server's name is not the one of ``address``.
    """
    attempts = Attempts(patience)
    while True:
        attempts.begin()
        try:
            async with aclosing(_commands(address, progress, streams, name, patience)) as commands:
                async for command in commands:
                    async for item in items(command, progress, reader):
                        attempts.brought(item)
                        yield item
        except (
            OSError,
            ConnectionClosedError,
            ProtocolViolationError,
            ConnectionSilentError,
            MalformedCommandError,
            LineTooLongError,
            EndlessTokenError,
        ) as error:
            log.warning("Connection %s:%d ended: %s", address.host, address.port, error or type(error).__name__)
        finally:
            progress.disconnected()
        await attempts.wait()


async def _commands(
    address: Address, progress: Progress, streams: Sequence[str], name: str, patience: Patience
) -> AsyncGenerator[Command, None]:
    """One connection: introduces itself, subscribes, and gives what the server says until one of them ends it."""
    async with asyncio.timeout(patience.silence):
        connection = Connection(*await asyncio.open_connection(address.host, address.port), address.dialect)
    connection.send(c.Name(name), ping(), *_subscriptions(address.dialect, progress, streams))
    pinging = asyncio.create_task(connection.keep_alive(patience.ping))
    introduced = False
    try:
        async for command in connection.received(patience.silence):
            match command:
                case c.Error(message):
                    yield command
                    raise ConnectionClosedError(f"the server says: {message[:_SHOWN]!r}")
                case c.Server(server_name):
                    _check(server_name, address)
                    introduced = True
                case c.Rdata() | c.Position() if not introduced:
                    raise ProtocolViolationError("the server does not say who it is")
                case command if isinstance(command, c.ONLY_CLIENTS_SEND):
                    raise ProtocolViolationError(f"{c.word(command)}: only clients send this")
            if not isinstance(command, c.Ping):
                yield command
        raise ConnectionClosedError("the server closed it")
    except (
        ProtocolViolationError,
        ConnectionSilentError,
        MalformedCommandError,
        LineTooLongError,
        WrongServerError,
    ) as error:
        connection.send(c.Error(str(error)))
        raise
    finally:
        pinging.cancel()
        await connection.close()


def _check(server_name: str, address: Address) -> None:
    if server_name != address.server_name:
        raise WrongServerError(
            f"The server at {address.host}:{address.port} belongs to {server_name}, not to {address.server_name}."
        )


def _subscriptions(dialect: Dialect, progress: Progress, streams: Sequence[str]) -> list[Command]:
    if dialect is Dialect.TOKENS:
        return [c.Replicate(stream, progress.positions.get((stream, None))) for stream in streams]
    return [c.Replicate()]
