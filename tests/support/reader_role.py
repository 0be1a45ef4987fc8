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
    """Name of the role, and URI of the database for it."""

    name: str
    dsn: str


def create_role(settings: Settings, name: str, database: str, *options: str) -> None:
    """Create the role as documented, with psql and the printed SQL."""
    run_script(settings, database, "grants", *options, "--role", name)


def run_script(settings: Settings, database: str, *command: str) -> None:
    """Run the SQL that a command prints in psql."""
    printed = lakehouse(settings, *command)
    assert printed.returncode == 0, printed.stderr
    subprocess.run(
        [BIN / "psql", "-Xq", "--set", "ON_ERROR_STOP=1", "--dbname", database],
        input=printed.stdout, text=True, check=True, env=os.environ, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def reader_role(settings: Settings, database: str, *options: str) -> Iterator[Role]:
    """A role with the privileges of ``lakehouse grants`` and ``options``; it is dropped at the end."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    create_role(settings, name, database, *options)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"alter role {name} password 'p'".encode())
        yield Role(name, make_conninfo(database, user=name, password="p"))
        owner.execute(f"drop owned by {name}; drop role {name}".encode())
