"""``lakehouse grants``: the SQL of the roles that read Synapse's database, and that compress its state."""

import re
from typing import Annotated, Final

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings

_PLAIN_NAME: Final = r"[a-z_][a-z0-9_]{0,62}"


def _plain(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(_PLAIN_NAME, name):
        raise typer.BadParameter("a role's name has lower-case letters, digits and underscores here, and no others")
    return name


def grants(
    role: Annotated[
        str | None,
        typer.Option(help="Name of the role: lakehouse, or lakehouse_compressor, if omitted.", callback=_plain),
    ] = None,
    compress: Annotated[bool, typer.Option("--compress", help="The role that `compress apply` writes with.")] = False,
    cache_keys: Annotated[
        bool,
        typer.Option(
            "--cache-keys",
            help="Also the right to read the keys of caches, for `replicate serve`. Access tokens are among them.",
        ),
    ] = False,
    is_hardened: Annotated[
        bool,
        typer.Option(
            "--harden",
            help="Instead: statements that take from it what every role may do, with what each could break.",
        ),
    ] = False,
) -> None:
    """Print the SQL that makes a role which can read what the lakehouse copies, and nothing else: pipe it into psql."""
    from synapse_lakehouse import catalogue
    from synapse_lakehouse.compressor.postgres import grants as rewriting
    from synapse_lakehouse.compressor.postgres.progress_tables import PROGRESS_TABLES
    from synapse_lakehouse.postgres.access import grants as source
    from synapse_lakehouse.postgres.access import harden

    role = role or ("lakehouse_compressor" if compress else "lakehouse")
    if is_hardened:
        output.echo(harden.build_hardening_sql(role), end="")
    elif compress:
        output.echo(rewriting.create_role_sql(role), end="")
    else:
        output.echo(
            source.build_grants_sql(
                catalogue.load_catalogue(), Settings(), role, PROGRESS_TABLES, has_secrets=cache_keys
            ),
            end="",
        )
