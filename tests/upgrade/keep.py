"""Store a small lake of the installed version. A test of later versions opens and updates it.

``make earlier-lake COMMIT=…`` runs this program with the code of a commit. A real run copies, audits and publishes a
few rooms of the sample. Then the source, the catalog and the warehouse are written to ``earlier_lake.tar.xz``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import psycopg
from psycopg import sql

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.local.postgres import embedded_postgres, sample

KEPT = Path(__file__).with_name("earlier_lake.tar.xz")
# Iceberg's metadata contains absolute paths, so the lake must be opened in the folder in which it was created.
PLACE = Path("/tmp/synapse-lakehouse-earlier")
DATE = "2026-11-20"
_MAX_EVENTS = 24
_BY_EVENT = (
    "event_edges",
    "event_to_state_groups",
    "redactions",
    "rejections",
    "ex_outlier_stream",
    "event_auth_chains",
    "event_relations",
    "un_partial_stated_event_stream",
)
_EMPTY_TABLES = (
    "event_push_actions",
    "event_search",
    "cache_invalidation_stream_by_instance",
    "profile_updates_per_user",
)


def reduce(dsn: str) -> None:
    """Delete all rooms with more than ``_MAX_EVENTS`` events from a restored sample."""
    with psycopg.connect(dsn) as source:
        source.execute("set session_replication_role = replica")
        source.execute(
            "create temporary table kept as select room_id from events group by 1 having count(*) <= %s", [_MAX_EVENTS]
        )
        rooms = source.execute(
            "select table_name::text from information_schema.columns join information_schema.tables using (table_name)"
            " where column_name = 'room_id' and table_type = 'BASE TABLE' and tables.table_schema = 'public'"
        ).fetchall()
        for (name,) in rooms:
            source.execute(
                sql.SQL("delete from {} where room_id not in (table kept)").format(sql.Identifier("public", name))
            )
        for name in _BY_EVENT:
            source.execute(
                sql.SQL("delete from {} where event_id not in (select event_id from events)").format(
                    sql.Identifier(name)
                )
            )
        source.execute("delete from state_group_edges where state_group not in (select id from state_groups)")
        for name in _EMPTY_TABLES:
            source.execute(sql.SQL("truncate {}").format(sql.Identifier(name)))


def main() -> None:
    """Create and store the lake."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    PLACE.mkdir()
    try:
        with embedded_postgres.run_server(PLACE / "postgres") as server:
            source = sample.restore_sample(server, "source")
            reduce(source)
            dump = _dump(server, "source")
            server.create_database("lake")
            _run(server, source)
            (PLACE / "source.sql").write_bytes(dump)
            (PLACE / "catalog.sql").write_bytes(_dump(server, "lake"))
        with tarfile.open(KEPT, "w:xz", preset=9) as archive:
            for name in ("warehouse", "source.sql", "catalog.sql"):
                archive.add(PLACE / name, name, filter=_anonymous)
        print(f"{KEPT.name}: {KEPT.stat().st_size:,} bytes")
    finally:
        shutil.rmtree(PLACE)


def _run(server: embedded_postgres.EmbeddedServer, source: str) -> None:
    home = PLACE / "home"
    home.mkdir()
    jars = PROJECT_FOLDER / ".lakehouse" / "spark"
    if jars.exists():
        (home / "spark").symlink_to(jars.resolve())
    settings = {
        "SYNAPSE_DSN": source,
        "SYNAPSE_SERVER_NAME": sample.read_server_name(),
        "SYNAPSE_CONFIG": str(sample.SAMPLE_CONFIG),
        "LAKEHOUSE_HOME": str(home),
        "LAKEHOUSE_CATALOG_URI": server.dsn("lake"),
        "LAKEHOUSE_WAREHOUSE": str(PLACE / "warehouse"),
    }
    command = [str(Path(sys.executable).with_name("lakehouse")), "run", "--date", DATE]
    subprocess.run(command, env=os.environ | settings, check=True)


def _dump(server: embedded_postgres.EmbeddedServer, database: str) -> bytes:
    result = server.tool("pg_dump", "--no-owner", "--no-acl", database=database, stdout=subprocess.PIPE)
    return bytes(result.stdout)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


if __name__ == "__main__":
    main()
