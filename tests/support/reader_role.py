"""The role that reads Synapse's database."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import make_conninfo

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import BIN
from tests.conftest import lakehouse


@dataclass(frozen=True)
class Role:
    """A role. ``dsn``: libpq URI with which it connects to the database."""

    name: str
    dsn: str


def create_role(settings: Settings, name: str, database: str, *options: str) -> None:
    """Create a role as documented: run the SQL of ``lakehouse grants`` in psql."""
    run_script(settings, database, "grants", *options, "--role", name)


def run_script(settings: Settings, database: str, *command: str) -> None:
    """Run the output of a ``lakehouse`` command, which is SQL, in psql."""
    result = lakehouse(settings, *command)
    assert result.returncode == 0, result.stderr
    subprocess.run(
        [BIN / "psql", "-Xq", "--set", "ON_ERROR_STOP=1", "--dbname", database],
        input=result.stdout, text=True, check=True, env=os.environ, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def reader_role(settings: Settings, database: str, *options: str) -> Iterator[Role]:
    """Yield a role with the privileges of ``lakehouse grants`` with ``options``. Drop it at the end."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    create_role(settings, name, database, *options)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"alter role {name} password 'p'".encode())
        yield Role(name, make_conninfo(database, user=name, password="p"))
        owner.execute(f"drop owned by {name}; drop role {name}".encode())
