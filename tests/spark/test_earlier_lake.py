"""A lake that an earlier version made opens, and goes on from what it holds (tests/upgrade/keep.py made it)."""

import fcntl
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli.runs import summary
from synapse_lakehouse.cli.streams import gaps
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.ledger import snapshot_columns
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from tests.support.incremental_lake import AdvancingLake, advancing
from tests.upgrade.keep import KEPT, PLACE

DATABASES = {"source": "earlier_source", "catalog": "earlier_catalog"}


@pytest.fixture
def lake(server: EmbeddedServer, settings: Settings) -> Iterator[AdvancingLake]:
    """The kept lake where it was made, its catalog and its source restored."""
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        try:
            shutil.unpack_archive(KEPT, PLACE)
            for file, database in DATABASES.items():
                server.create_database(database)
                dump = (PLACE / f"{file}.sql").read_bytes()
                server.tool(
                    "psql", "-Xq", "--set", "ON_ERROR_STOP=1", input=dump, database=database, stdout=subprocess.DEVNULL
                )
            own = {
                "synapse_dsn": server.dsn(DATABASES["source"]),
                "synapse_server_name": sample.read_server_name(),
                "lakehouse_catalog_uri": server.dsn(DATABASES["catalog"]),
                "lakehouse_warehouse": str(PLACE / "warehouse"),
            }
            with advancing(settings.model_copy(update=own)) as lake:
                yield lake
        finally:
            shutil.rmtree(PLACE)
            for database in DATABASES.values():
                server.tool("dropdb", "--force", "--if-exists", database)


def test_a_lake_of_an_earlier_version_opens_and_advances(lake: AdvancingLake) -> None:
    before = content(lake.settings)
    assert before["bronze.events"].total() > 0
    assert before["gold.events"].total() > 0
    assert told(lake.settings) > 0

    adopt(lake)
    with psycopg.connect(str(lake.settings.synapse_dsn)) as source:
        source.execute("set session_replication_role = replica")
        source.execute("update events set depth = depth + 1 where stream_ordering % 5 = 0")
        source.execute("update event_json set json = '{}' where event_id in (select event_id from events limit 7)")
        source.execute("delete from event_edges where event_id in (select event_id from events limit 30)")
        source.execute("insert into erased_users values ('@since:then')")
    advanced = lake.advance()

    assert lake.departures() == {}
    known = {name.removeprefix("bronze.") for name in before if name.startswith("bronze.")}
    assert {row["extent"] for name, row in advanced.items() if name in known} == {"changed", "none"}
    assert advanced["events"]["rows_outdated"] == advanced["events"]["rows_read"] > 0
    assert advanced["event_edges"]["rows_deleted"] > 0
    assert content(lake.settings, release=1) == before


def content(settings: Settings, release: int | None = None) -> dict[str, Counter[tuple[object, ...]]]:
    """Rows of every table of a release, by default of the latest."""
    with duckdb_reader.open_duckdb(settings) as connection:
        chosen = duckdb_reader.get_release(connection, settings, release)
        duckdb_reader.create_views(connection, settings, chosen, chosen.tables)
        return {name: Counter(map(_hashable, connection.execute(f"from {name}").fetchall())) for name in chosen.tables}


def told(settings: Settings) -> int:
    """How many tables and positions commands tell of the latest release."""
    with duckdb_reader.open_duckdb(settings) as connection:
        chosen = duckdb_reader.get_release(connection, settings, None)
        of_run = summary.read_summary(connection, settings, chosen)
        gaps.read_gaps(connection, settings, chosen, is_latest=True)
        return min(len(of_run.copied), len(of_run.positions))


def adopt(lake: AdvancingLake) -> None:
    """Say in the ledger that the first release came from the source as it is now restored.

    It is equal to what was copied, but another database: its transaction ids and the numbers of its tables are new.
    """
    declared, app = catalogue.load_catalogue(), lake.app()
    tables.ensure_tables(app.catalog, declared)
    (first,) = store.read_releases(app.catalog)
    with export_snapshot(lake.settings, declared) as (_, snapshot):
        ledger = [
            row
            | snapshot_columns(snapshot)
            | {"statement": snapshot.fingerprints[row["table_name"]], "written_at": datetime.now(UTC)}
            for row in store.read_run_rows(app.catalog, "audit.ledger", first.run_id)
        ]
    store.append_audit_rows(app.catalog, "audit.ledger", ledger)


def _hashable(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(str(value) if isinstance(value, (list, dict)) else value for value in row)
