"""``lakehouse report``: write a page about the lakehouse as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session


def report(
    file: Annotated[
        Path | None,
        typer.Option("--output", help="File to write; default: report/index.html in LAKEHOUSE_HOME."),
    ] = None,
) -> None:
    """Write a page with the present state of the lakehouse, the changes since an earlier release, streams, growth,
    integrity, federation and cost.

    The page is one HTML file that loads nothing from the network. Each run also writes it after it publishes a release.
    """
    from synapse_lakehouse.report import page

    with lake_session.open_lake() as (settings, connection):
        path = page.write_page(connection, settings, file.absolute() if file else None)
    output.echo(path.as_uri())
