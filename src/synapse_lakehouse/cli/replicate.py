"""``lakehouse replicate``: Synapse's replication, served and landed."""

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
    help="Serve Synapse's streams to whoever follows them, or land what its processes tell each other.",
    no_args_is_help=True,
)


class TcpDialect(StrEnum):
    """Forms of the protocol over TCP."""

    TOKENS = "tokens"
    INSTANCES = "instances"


def _release(text: str | None) -> str | None:
    if text is not None and row_schemas.parse_release(text) is None:
        raise typer.BadParameter("a release of Synapse from 1.0 on, such as 1.40")
    return text


@app.callback()
def replicate() -> None:
    """Serve Synapse's streams, or land what its processes tell each other."""


@app.command()
def serve(
    dialect: Annotated[
        TcpDialect,
        typer.Option(help="tokens: each stream from a token, resumable; instances: by writing process, from now on."),
    ] = TcpDialect.INSTANCES,
    host: Annotated[str, typer.Option(help="Address to listen on. Nobody is asked who they are: think twice.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9092,
    row_format: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE",
            help="Send rows in the form of this release of Synapse, such as 1.40. If omitted: of the newest release.",
            callback=_release,
        ),
    ] = None,
) -> None:
    """Publish the streams of Synapse's database by its TCP replication protocol, until Ctrl-C.

    Rows have what the catalogue lists; the rest is null. What clients tell (USER_SYNC and the like) is recorded in
    LAKEHOUSE_HOME/logs/replication, and never executed.
    """
    from synapse_lakehouse.replication import service

    log_to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    with connect_services() as settings:
        release = row_schemas.parse_release(row_format) if row_format else None
        service.serve(settings, Dialect(dialect), host, port, output.echo, release)


@app.command()
def tap(
    dialect: Annotated[
        Dialect, typer.Option(help="redis: what Synapse's processes publish; the others: a server over TCP.")
    ] = Dialect.REDIS,
    host: Annotated[str, typer.Option(help="The server, over TCP.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 9092,
) -> None:
    """Land every replication command in bronze.replication_commands, until Ctrl-C.

    It goes on where it stopped; what it missed is read from Synapse's database. On Redis (LAKEHOUSE_REDIS_URL) it only
    listens, and never to the channel that carries access tokens.
    """
    from synapse_lakehouse.replication import service

    log_to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    with connect_services() as settings:
        service.tap(settings, dialect, host, port, output.echo)
