"""``lakehouse replicate``: Synapse's streams, served by its replication protocol."""

import logging
from enum import StrEnum
from typing import Annotated

import typer

from synapse_lakehouse.embedded.services import connected

app = typer.Typer(help="Serve Synapse's streams to whoever follows them.", no_args_is_help=True)


class TcpDialect(StrEnum):
    """Forms of the protocol over TCP."""

    TOKENS = "tokens"
    INSTANCES = "instances"


@app.callback()
def replicate() -> None:
    """Serve Synapse's streams to whoever follows them."""


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
) -> None:
    """Publish the streams of Synapse's database by its TCP replication protocol, until Ctrl-C.

    Rows have what the catalogue lists; the rest is null. What clients tell (USER_SYNC and the like) is recorded in
    LAKEHOUSE_HOME/logs/replication, and never executed.
    """
    from synapse_lakehouse.replication import service
    from synapse_lakehouse.replication.grammar import Dialect

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with connected() as settings:
        service.serve(settings, Dialect(dialect), host, port, typer.echo)
