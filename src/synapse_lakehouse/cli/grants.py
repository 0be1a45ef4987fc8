"""``lakehouse grants``: SQL of the roles that read Synapse's database or compress its state."""

import re
from typing import Annotated, Final

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings

_PLAIN_NAME: Final = r"[a-z_][a-z0-9_]{0,62}"


def _plain(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(_PLAIN_NAME, name):
        raise typer.BadParameter("must consist of lower-case letters, digits and underscores")
    return name


def grants(
    role: Annotated[
        str | None,
        typer.Option(
            help="Name of the role; default: lakehouse, or lakehouse_compressor with --compress.", callback=_plain
        ),
    ] = None,
    compress: Annotated[
        bool, typer.Option("--compress", help="Print the SQL for the role of `compress apply` instead.")
    ] = False,
    cache_keys: Annotated[
        bool,
        typer.Option(
            "--cache-keys",
            help="Also grant the right to read cache keys, for `replicate serve`. Some keys contain access tokens.",
        ),
    ] = False,
    is_state: Annotated[
        bool, typer.Option("--state", help="Print the SQL for the database of SYNAPSE_STATE_DSN instead.")
    ] = False,
    is_hardened: Annotated[
        bool,
        typer.Option(
            "--harden",
            help="Instead of the grants, print statements that revoke privileges that every role has (PUBLIC). "
            "Comments explain the side effects.",
        ),
    ] = False,
) -> None:
    """Print SQL that creates a role with exactly the privileges of the lakehouse. Pipe it into psql."""
    from synapse_lakehouse import catalogue
    from synapse_lakehouse.catalogue import Database
    from synapse_lakehouse.compressor.postgres import grants as compressor_grants
    from synapse_lakehouse.compressor.postgres.progress_tables import PROGRESS_TABLES
    from synapse_lakehouse.postgres.access import grants as reader_grants
    from synapse_lakehouse.postgres.access import public_rights
    from synapse_lakehouse.postgres.connection import split_by_database

    role = role or ("lakehouse_compressor" if compress else "lakehouse")
    if is_hardened:
        output.echo(public_rights.build_hardening_sql(role), end="")
    elif compress:
        output.echo(compressor_grants.create_role_sql(role), end="")
    else:
        settings, declared = Settings(), catalogue.load_catalogue()
        part = declared.of_database(Database.STATE) if is_state else split_by_database(settings, declared)[0]
        sql = reader_grants.build_grants_sql(part, settings, role, PROGRESS_TABLES, has_secrets=cache_keys)
        output.echo(sql, end="")
