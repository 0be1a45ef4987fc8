"""``lakehouse grants``: the SQL of the role that reads Synapse's database."""

import re
from typing import Annotated, Final

import typer

from synapse_lakehouse.settings import Settings

_PLAIN_NAME: Final = r"[a-z_][a-z0-9_]{0,62}"


def _plain(name: str) -> str:
    if not re.fullmatch(_PLAIN_NAME, name):
        raise typer.BadParameter("a role's name has lower-case letters, digits and underscores here, and no others")
    return name


def grants(
    role: Annotated[str, typer.Option(help="Name of the role.", callback=_plain)] = "lakehouse",
) -> None:
    """Print the SQL that makes a role which can read what the lakehouse copies, and nothing else: pipe it into psql."""
    from synapse_lakehouse import catalogue
    from synapse_lakehouse.source.grants import script

    typer.echo(script(catalogue.load(), Settings(), role), nl=False)
