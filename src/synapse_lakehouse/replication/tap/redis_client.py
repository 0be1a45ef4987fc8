"""Follows what Synapse's processes tell each other on Redis: listens, and says nothing.

Redis keeps nothing for those who are not there, so what was missed is read from the database.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.commands import Command, Unknown
from synapse_lakehouse.replication.protocol.connection import ConnectionSilentError
from synapse_lakehouse.replication.protocol.decode import parse
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.stream_tokens import EndlessTokenError, Missed, Progress
from synapse_lakehouse.replication.server.async_reader import Reader
from synapse_lakehouse.replication.tap.follower import DOCUMENTED, Attempts, Item, Patience, fill, items

log = get_printable_logger(__name__)

CLIENT_NAME: Final = "synapse-lakehouse"
"""As Redis lists it among its clients."""

_MOVES: Final = (b"RDATA ", b"POSITION ")


async def listen(
    url: str, server_name: str, progress: Progress, reader: Reader, patience: Patience = DOCUMENTED
) -> AsyncGenerator[Item, None]:
    """Everything that is published for ``server_name``, without end. Connects again whenever the connection ends.

    Once subscribed, and again after every interruption, it reads from the database what came after ``progress``; what
    is published meanwhile waits. Only the channel of the homeserver's name is subscribed to: the one for addresses of
    users carries their access tokens.

    :param url: of Redis, as ``redis://127.0.0.1:6379``; may hold a password, so it is never logged.
    """
    attempts = Attempts(patience)
    while True:
        attempts.begin()
        try:
            async with aclosing(_messages(url, server_name, patience)) as messages:
                async for data in messages:
                    if data is None:
                        async for item in _catch_up(progress, reader):
                            attempts.brought(item)
                            yield item
                        progress.caught_up()
                    elif command := _parsed(data):
                        async for item in items(command, progress, reader):
                            attempts.brought(item)
                            yield item
        except (RedisError, OSError, ConnectionSilentError, EndlessTokenError, MalformedCommandError) as error:
            log.warning("Redis is not heard any more: %s", type(error).__name__ if not str(error) else error)
        finally:
            progress.disconnected()
        await attempts.wait()


def is_address(url: str) -> bool:
    """Whether ``url`` can be understood; what the library says of one that cannot may quote its password."""
    try:
        parse_url(url)
    except ValueError:
        return False
    return True


async def _messages(url: str, channel: str, patience: Patience) -> AsyncGenerator[bytes | None, None]:
    """What is published on ``channel``; None as soon as nothing more can be missed."""
    # The library would connect again by itself, and nobody would know that something was missed.
    client = Redis.from_url(
        url, client_name=CLIENT_NAME, retry=Retry(NoBackoff(), 0), socket_connect_timeout=patience.silence
    )
    async with client, client.pubsub() as subscription:
        await subscription.subscribe(channel)
        waiting = _Waiting()
        watching = asyncio.create_task(_watch(subscription, waiting, patience))
        try:
            while True:
                waiting.since = monotonic()
                message: dict[str, Any] | None = await subscription.get_message(timeout=None)
                waiting.since = None
                if message is not None and message["type"] == "subscribe":
                    yield None
                elif message is not None and message["type"] == "message":
                    yield message["data"]
        except RedisError:
            if watching.done():
                raise ConnectionSilentError(patience.silence) from None
            raise
        finally:
            watching.cancel()


@dataclass
class _Waiting:
    since: float | None = None


async def _watch(subscription: PubSub, waiting: _Waiting, patience: Patience) -> None:
    """Ask for a sign of life while nothing is heard; end the connection when none comes."""
    while True:
        await asyncio.sleep(patience.ping)
        silent = 0.0 if waiting.since is None else monotonic() - waiting.since
        if silent >= patience.silence and subscription.connection:
            await subscription.connection.disconnect(nowait=True)
            return
        if silent >= patience.ping:
            await subscription.ping()


def _parsed(data: bytes) -> Command | None:
    """The command of a message; None where it is blank.

    :raises MalformedCommandError: where nobody can tell which token is lost with it, so that it is to be read from the
        database.
    """
    try:
        return parse(data, Dialect.REDIS)
    except MalformedCommandError as refused:
        if data.startswith(_MOVES):
            raise
        log.warning("A message is not understood: %s", refused)
        word, _, rest = data.decode("utf-8", "surrogateescape").partition(" ")
        return Unknown(word, rest)


async def _catch_up(progress: Progress, reader: Reader) -> AsyncIterator[Item]:
    """What the database has after ``progress``; streams that are new to it are followed from now on."""
    heads = await reader.heads()
    for source in sorted({*progress.positions, *heads.by_instance}, key=str):
        stream, _ = source
        if stream not in heads.linear:
            continue
        position = progress.begin(source)
        if position is None:
            if (begin := heads.begin(source)) is not None:
                progress.reach(source, begin)
        elif heads.are_behind(source, position):
            yield progress.went_back(source, heads.now(source))
        elif position < (head := heads.now(source)):
            async for item in fill(Missed(*source, position, head), progress, reader):
                yield item
