"""Restore the shipped sample, a dump of the database of a small real Synapse, if no other database is configured."""

import gzip
import hashlib
import json
import subprocess

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedPostgresError, EmbeddedServer

SAMPLE_FOLDER = PROJECT_FOLDER / "sample"
SAMPLE_DUMP = SAMPLE_FOLDER / "synapse.sql.gz"
SAMPLE_CONFIG = SAMPLE_FOLDER / "homeserver.yaml"
SAMPLE_DATABASE = "synapse_sample"


def read_server_name() -> str:
    """Return the server_name of the sample's homeserver."""
    return str(json.loads((SAMPLE_FOLDER / "manifest.json").read_text(encoding="utf-8"))["server_name"])


def restore_sample(server: EmbeddedServer, database: str = SAMPLE_DATABASE) -> str:
    """Return the libpq URI of ``database`` with the sample. Restore the dump if the database is absent or outdated.

    :raises EmbeddedPostgresError: when the dump is missing or cannot be restored.
    """
    if not SAMPLE_DUMP.exists():
        raise EmbeddedPostgresError(
            f"The sample {SAMPLE_DUMP} is missing. Check it out again, or rebuild it with `make sample`."
        )
    packed = SAMPLE_DUMP.read_bytes()
    version = hashlib.sha256(packed).hexdigest()
    if database in server.databases():
        if server.comment(database) == version:
            return server.dsn(database)
        server.tool("dropdb", "--force", database)
    server.create_database(database)
    server.tool(
        "psql", "-XqAt", "--set", "ON_ERROR_STOP=1", "--single-transaction",
        input=gzip.decompress(packed), database=database, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    server.tool("psql", "-XqAtc", f"comment on database {database} is '{version}'", database=database)
    server.tool("psql", "-XqAtc", "analyze", database=database)
    return server.dsn(database)
