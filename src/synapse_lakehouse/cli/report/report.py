"""``lakehouse report``: write the page of the lakehouse as one HTML file."""

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
    """Write the page: state, changes since an earlier release, streams, growth, integrity, federation and cost.

    The page is one HTML file without network access. Every release writes it too.
    """
    from synapse_lakehouse.report import page

    with lake_session.open_lake() as (settings, connection):
        path = page.write_page(connection, settings, file.absolute() if file else None)
    output.echo(path.as_uri())
