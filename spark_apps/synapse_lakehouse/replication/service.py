"""The server as a process: what it records, and what ends it."""

import asyncio
import errno
import json
import logging
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from synapse_lakehouse import catalogue
from synapse_lakehouse.replication.commands import Command
from synapse_lakehouse.replication.feed import Feed
from synapse_lakehouse.replication.grammar import Dialect
from synapse_lakehouse.replication.records import record
from synapse_lakehouse.replication.server import Record, Server
from synapse_lakehouse.settings import Settings

RECORDED_BYTES: Final = 64 << 20
"""What is kept of the commands that clients sent."""
_FILES: Final = 4


class ServiceError(RuntimeError):
    """The streams cannot be served; the message says what to do."""


def serve(settings: Settings, dialect: Dialect, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve the streams of the source until SIGINT or SIGTERM.

    :raises ServiceError: when the port cannot be opened.
    :raises SourceError: when the database cannot be read.
    """
    name = str(settings.synapse_server_name)
    server = Server(
        Feed(settings, catalogue.load()), dialect, name, recorder(settings.lakehouse_home / "logs" / "replication")
    )

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await server.serve(
            host,
            port,
            lambda opened: tell(f"Serving the streams of {name} on {host}:{opened}, dialect {dialect}."),
            stop,
        )

    try:
        asyncio.run(run())
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            raise
        raise ServiceError(
            f"Port {port} on {host} cannot be opened ({error.strerror}). Choose another with --port or --host."
        ) from None


def recorder(folder: Path) -> Record:
    """Keeps what clients tell in ``received.jsonl`` of ``folder``, the oldest given up beyond ``RECORDED_BYTES``."""
    folder.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(
        folder / "received.jsonl", maxBytes=RECORDED_BYTES // _FILES, backupCount=_FILES - 1, encoding="utf-8"
    )

    def keep(subscriber: str, command: Command) -> None:
        line = json.dumps({"at": datetime.now(UTC).isoformat(), "from": subscriber} | record(command))
        handler.emit(logging.makeLogRecord({"msg": line}))

    return keep
