"""The server and the tap as processes: where things are kept, and what ends them."""

import asyncio
import errno
import json
import logging
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.row_schemas import Release, shapes_of
from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.server.async_reader import Reader
from synapse_lakehouse.replication.server.server import Record, Server
from synapse_lakehouse.replication.server.stream_reader import Feed
from synapse_lakehouse.replication.tap.command_log import record
from synapse_lakehouse.replication.tap.redact_fields import Keeping
from synapse_lakehouse.replication.tap.redis_client import is_address, listen
from synapse_lakehouse.replication.tap.tap import land
from synapse_lakehouse.replication.tap.tcp_client import Address, follow

RECORDED_BYTES: Final = 64 << 20
"""What is kept of the commands that clients sent."""
_FILES: Final = 4


class ReplicationServiceError(LakehouseError):
    """The streams cannot be served; the message says what to do."""


def serve(
    settings: Settings,
    dialect: Dialect,
    host: str,
    port: int,
    tell: Callable[[str], None],
    release: Release | None = None,
) -> None:
    """Serve the streams of the source until SIGINT or SIGTERM.

    :param release: of Synapse, whose row formats are served; by default the newest.
    :raises ReplicationServiceError: when the port cannot be opened.
    :raises SourceError: when the database cannot be read.
    """
    name = str(settings.synapse_server_name)
    feed = Feed(settings, catalogue.load_catalogue(), shapes=shapes_of(release))
    server = Server(feed, dialect, name, recorder(_folder(settings)))

    async def run() -> None:
        await server.serve(
            host,
            port,
            lambda opened: tell(f"Serving the streams of {name} on {host}:{opened}, dialect {dialect}."),
            _stopped(),
        )

    try:
        asyncio.run(run())
    except OSError as error:
        known = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)
        if error.errno not in known and not isinstance(error, socket.gaierror):
            raise
        raise ReplicationServiceError(
            f"Port {port} on {host} cannot be opened ({error.strerror}). Choose another with --port or --host."
        ) from None


def tap(settings: Settings, dialect: Dialect, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Land what is heard, until SIGINT or SIGTERM: on Redis, or from a server at ``host`` and ``port`` over TCP.

    :raises ReplicationServiceError: when LAKEHOUSE_REDIS_URL is missing, or not the address of a Redis.
    :raises SourceError: when the database, which has what is missed, cannot be read at the start.
    :raises WrongServerError: when the server belongs to another homeserver.
    """
    from synapse_lakehouse.replication.tap.iceberg_sink import Batch, Landing

    declared, name, url = catalogue.load_catalogue(), str(settings.synapse_server_name), settings.lakehouse_redis_url
    if dialect is Dialect.REDIS and not url:
        raise ReplicationServiceError("LAKEHOUSE_REDIS_URL is not set: the Redis that Synapse's workers talk through.")
    if dialect is Dialect.REDIS and not is_address(str(url)):
        raise ReplicationServiceError(
            "LAKEHOUSE_REDIS_URL is not the address of a Redis. It looks like redis://:password@host:6379; in the "
            "password, write / as %2F, @ as %40, # as %23, ? as %3F and % as %25."
        )
    source = "redis" if dialect is Dialect.REDIS else "tcp"
    landing = Landing(open_catalog(settings), source, dialect)
    alive = _folder(settings) / "tap.alive"
    progress = Progress(landing.positions())
    streams, keeping = [stream.name for stream in declared.streams], Keeping(declared)

    async def run() -> None:
        reader = Reader(Feed(settings, declared))
        try:
            await hear(reader)
        finally:
            await reader.close()

    async def hear(reader: Reader) -> None:
        if dialect is Dialect.REDIS:
            items = listen(str(url), name, progress, reader)
        else:
            items = follow(Address(host, port, dialect, name), progress, streams=streams, reader=reader)
        if dialect is not Dialect.TOKENS:
            # A wrong SYNAPSE_DSN is told now; an outage later on, whenever it is first noticed, is waited for.
            await reader.heads()
        tell(f"Landing the replication of {name} in {COMMANDS_TABLE}.")
        await land(
            items, progress, landing, lambda: Batch(keeping, source, dialect), _stopped(),
            beat=alive.touch, reads=lambda: reader.is_reading,
        )  # fmt: skip

    asyncio.run(run())


def _folder(settings: Settings) -> Path:
    folder = settings.lakehouse_home / "logs" / "replication"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stopped() -> asyncio.Event:
    """Set once this process is asked to end."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def recorder(folder: Path) -> Record:
    """Keeps what clients tell in ``received.jsonl`` of ``folder``, the oldest given up beyond ``RECORDED_BYTES``."""
    handler = RotatingFileHandler(
        folder / "received.jsonl", maxBytes=RECORDED_BYTES // _FILES, backupCount=_FILES - 1, encoding="utf-8"
    )

    def keep(subscriber: str, command: Command) -> None:
        line = json.dumps({"at": datetime.now(UTC).isoformat(), "from": subscriber} | record(command))
        handler.emit(logging.makeLogRecord({"msg": line}))

    return keep
