"""``lakehouse replicate``: serve Synapse's replication protocol, or record its commands in the lake."""

import logging
from enum import StrEnum
from typing import Annotated

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.printable_text import log_to_stderr
from synapse_lakehouse.replication.protocol import row_schemas
from synapse_lakehouse.replication.protocol.dialect import Dialect

app = typer.Typer(
    help="Serve Synapse's streams, or record the replication commands of its processes.", no_args_is_help=True
)


class TcpDialect(StrEnum):
    """Dialects of the protocol over TCP."""

    TOKENS = "tokens"
    INSTANCES = "instances"


def _release(text: str | None) -> str | None:
    if text is not None and row_schemas.parse_release(text) is None:
        raise typer.BadParameter("must be a release of Synapse, 1.0 or later, such as 1.40")
    return text


@app.callback()
def replicate() -> None:
    """Serve Synapse's streams, or record the replication commands of its processes."""


@app.command()
def serve(
    dialect: Annotated[
        TcpDialect,
        typer.Option(help="tokens: clients can resume a stream at a token; instances: clients receive only new rows."),
    ] = TcpDialect.INSTANCES,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. There is no authentication: any client that can connect can read."),
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free port.")] = 9092,
    row_format: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE",
            help="Send rows in the format of this release of Synapse, such as 1.40; default: the newest format.",
            callback=_release,
        ),
    ] = None,
) -> None:
    """Serve the streams of Synapse's database over Synapse's TCP replication protocol, until Ctrl-C.

    Rows contain the columns of the catalogue; other columns are null. Commands of clients that would change
    Synapse (such as USER_SYNC) are logged in LAKEHOUSE_HOME/logs/replication and not executed.
    """
    from synapse_lakehouse.replication import service

    log_to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    with connect_services() as settings:
        release = row_schemas.parse_release(row_format) if row_format else None
        service.serve(settings, Dialect(dialect), host, port, output.echo, release)


@app.command()
def tap(
    dialect: Annotated[
        Dialect,
        typer.Option(help="redis: read from LAKEHOUSE_REDIS_URL; tokens or instances: read from a TCP server."),
    ] = Dialect.REDIS,
    host: Annotated[str, typer.Option(help="Host of the TCP server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the TCP server.")] = 9092,
) -> None:
    """Record every replication command in bronze.replication_commands, until Ctrl-C.

    The tap resumes where it stopped, and reads missed rows from Synapse's database. It publishes nothing on Redis
    (LAKEHOUSE_REDIS_URL), and does not subscribe to the channel that contains access tokens.
    """
    from synapse_lakehouse.replication import service

    log_to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    with connect_services() as settings:
        service.tap(settings, dialect, host, port, output.echo)
