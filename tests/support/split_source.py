"""A copy of a Synapse database, split into a main and a state database (``databases`` in homeserver.yaml)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import copied_source

STATE_TABLES: Final = (
    "state_groups", "state_group_edges", "state_groups_state", "state_groups_pending_deletion",
    "state_groups_persisting",
)  # fmt: skip
"""Tables that Synapse creates for the store ``state`` (``synapse/storage/schema/state``)."""
COMMON_TABLES: Final = (
    "schema_version", "schema_compat_version", "applied_schema_deltas", "applied_module_schemas", "background_updates",
)  # fmt: skip
"""Tables that Synapse creates in each database (``synapse/storage/schema/common``)."""


@contextmanager
def split_source(
    server: EmbeddedServer, database: str = sample.SAMPLE_DATABASE, state_server: EmbeddedServer | None = None
) -> Iterator[tuple[str, str]]:
    """Split a copy of ``database``; yield the libpq URIs of the main and the state database.

    :param state_server: server of the state database, which has ``database``, too; by default ``server``.
    """
    with copied_source(server, database) as main, copied_source(state_server or server, database) as state:
        drop_tables(main, list(STATE_TABLES))
        drop_tables(state, _tables_except(state, (*STATE_TABLES, *COMMON_TABLES)))
        with psycopg.connect(main) as connection:
            connection.execute("drop sequence state_group_id_seq")
        yield main, state


@contextmanager
def second_server(folder: Path) -> Iterator[EmbeddedServer]:
    """Run another server with the sample."""
    with embedded_postgres.run_server(folder / "data") as server:
        sample.restore_sample(server)
        yield server


def drop_tables(dsn: str, names: list[str]) -> None:
    """Drop the tables and the sequences that they own."""
    with psycopg.connect(dsn) as connection:
        for name in names:
            connection.execute(sql.SQL("drop table if exists {} cascade").format(sql.Identifier(name)))


def _tables_except(dsn: str, names: tuple[str, ...]) -> list[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select relname::text from pg_class join pg_namespace on pg_namespace.oid = relnamespace"
            " where relkind in ('r', 'p') and not relispartition and nspname = current_schema()"
            " and not relname = any(%s)",
            [list(names)],
        ).fetchall()
    return [name for (name,) in rows]
