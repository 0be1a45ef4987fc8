"""Rebuild the sample: play scenes on a real Synapse over its client API, and dump its database to this folder.

``python -m sample.build`` takes a few minutes. It writes ``synapse.sql.gz`` (plain SQL without owners or grants, for an
empty database in C locale), ``manifest.json`` and ``homeserver.yaml`` (without secrets and paths).
"""

import argparse
import gzip
import hashlib
import json
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import yaml
from psycopg.rows import dict_row

from sample.configuration import MAIN, WORKERS, homeserver_yaml
from sample.environment import VENV, VERSION, synapse_python
from sample.homeserver import DATABASE, SERVER_NAME, homeserver
from sample.processes import free_ports
from sample.settle import settle
from sample.traffic import SEED, drive
from sample.traffic.federation import unreachable
from synapse_lakehouse.local.postgres import embedded_postgres

HERE = Path(__file__).resolve().parent
DUMP = HERE / "synapse.sql.gz"
REMOTE_NAME = "elsewhere.example"
REMOTE_DATABASE = "elsewhere"
PLANTED = HERE / "planted.sql"
MANIFEST = HERE / "manifest.json"
CONFIG = HERE / "homeserver.yaml"

_FACTS = """
select (select version from schema_version) as schema_version,
       (select count(*) from events) as events,
       (select count(*) from rooms) as rooms,
       (select count(*) from users) as users,
       (select count(*) from state_groups) as state_groups,
       current_setting('server_version') as postgresql_version
"""


def build(workdir: Path, venv: Path = VENV) -> dict[str, Any]:
    """Run two homeservers, play the scenes, wait for background work, and dump the database; return the manifest.

    :param workdir: an empty folder for the homeservers' files.
    """
    started_at = time.monotonic()

    def progress(stage: str) -> None:
        print(f"{time.monotonic() - started_at:6.1f} s  {stage}", flush=True)

    python = synapse_python(venv)
    peers = dict(zip((SERVER_NAME, REMOTE_NAME), free_ports(2), strict=True))
    with embedded_postgres.run_server(workdir / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        for database in (DATABASE, REMOTE_DATABASE):
            server.create_database(database)
        progress(f"starting Synapse {VERSION} with {', '.join(WORKERS)}, and a second homeserver")
        with homeserver(workdir / "local", dsn=server.dsn(DATABASE), peers=peers, python=python) as hs:
            with homeserver(
                workdir / "remote",
                server_name=REMOTE_NAME,
                dsn=server.dsn(REMOTE_DATABASE),
                workers=False,
                peers=peers,
                python=python,
            ) as remote:
                progress("playing scenes over the client API")
                stage = drive(hs, remote)
                settle(hs.dsn)
            stage.play(unreachable)
            progress("waiting for background work")
            settle(hs.dsn)
        with psycopg.connect(server.dsn(DATABASE)) as connection:
            connection.execute(PLANTED.read_bytes())
        progress("dumping")
        tables = row_counts(server.dsn(DATABASE))
        dump = server.tool("pg_dump", "--no-owner", "--no-acl", database=DATABASE, stdout=subprocess.PIPE).stdout
        DUMP.write_bytes(gzip.compress(dump, 9, mtime=0))
        manifest = _manifest(server.dsn(DATABASE), stage.found, tables)
    MANIFEST.write_text(json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=False) + "\n", encoding="utf-8")
    ports = {name: 8080 + number for number, name in enumerate((MAIN, *WORKERS))}
    CONFIG.write_text(yaml.safe_dump(homeserver_yaml(SERVER_NAME, ports), sort_keys=False), encoding="utf-8")
    progress(f"{DUMP.name}: {DUMP.stat().st_size:,} bytes, {manifest['events']:,} events in {manifest['rooms']} rooms")
    return manifest


def row_counts(dsn: str) -> dict[str, int]:
    """Return the number of rows of each table in the database's public schema."""
    with psycopg.connect(dsn) as connection:
        names = [
            row[0] for row in connection.execute("select tablename from pg_tables where schemaname='public' order by 1")
        ]
        counts = {}
        for name in names:
            query = psycopg.sql.SQL("select count(*) from {}").format(psycopg.sql.Identifier(name))
            row = connection.execute(query).fetchone()
            counts[name] = int(row[0]) if row else 0
        return counts


def _manifest(dsn: str, features: dict[str, list[str]], tables: dict[str, int]) -> dict[str, Any]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        facts = connection.execute(_FACTS).fetchone() or {}
    return {
        "synapse_version": VERSION,
        "server_name": SERVER_NAME,
        **facts,
        "seed": SEED,
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": hashlib.sha256(DUMP.read_bytes()).hexdigest(),
        "features": dict(sorted(features.items())),
        "tables": tables,
    }


def main() -> None:
    """Parse the command line and build the sample."""
    parser = argparse.ArgumentParser(prog="python -m sample.build", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venv", type=Path, default=VENV, help="folder of Synapse's virtual environment (%(default)s)")
    parser.add_argument(
        "--keep", type=Path, help="new folder for the homeservers' files and logs, which is not deleted"
    )
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True)
        build(options.keep, options.venv)
    else:
        with tempfile.TemporaryDirectory(prefix="synapse-sample-") as scratch:
            build(Path(scratch), options.venv)


if __name__ == "__main__":
    main()
