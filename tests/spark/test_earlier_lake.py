"""A lake that an earlier version wrote (tests/upgrade/keep.py) is rebuilt from the source; acknowledgements remain."""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli.runs import release_summary
from synapse_lakehouse.cli.streams import gaps
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_RUNS_TABLE
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import EarlierFormatError
from synapse_lakehouse.iceberg.write import discard_earlier_format
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.orchestration.run_lifecycle import replace_earlier_lake
from synapse_lakehouse.streams.gaps.record_gaps import add_recorded_ids
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake
from tests.upgrade.keep import KEPT, PLACE

HISTORY = ("silver.state_changes", "gold.state_resets")
"""Tables of what earlier releases contained."""
DATABASES = {"source": "earlier_source", "catalog": "earlier_catalog"}


@pytest.fixture
def lake(server: EmbeddedServer, settings: Settings) -> Iterator[IncrementalLake]:
    """Yield the stored lake in its original folder, with its catalog and source restored."""
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
            overrides = {
                "synapse_dsn": server.dsn(DATABASES["source"]),
                "synapse_server_name": sample.read_server_name(),
                "lakehouse_catalog_uri": server.dsn(DATABASES["catalog"]),
                "lakehouse_warehouse": str(PLACE / "warehouse"),
            }
            with open_incremental_lake(settings.model_copy(update=overrides)) as lake:
                yield lake
        finally:
            shutil.rmtree(PLACE)
            for database in DATABASES.values():
                server.tool("dropdb", "--force", "--if-exists", database)


def test_a_lake_of_an_earlier_format_is_rebuilt(lake: IncrementalLake) -> None:
    app = lake.app()
    former_files = set((PLACE / "warehouse").rglob("*.parquet"))
    acknowledge(app.catalog, "events", 5, 7)
    runs = app.catalog.load_table(COMPRESSION_RUNS_TABLE)
    runs.append(
        pa.Table.from_pylist([{"room_id": "!a", "outcome": "put_back", "groups_left": 3}], runs.schema().as_arrow())
    )
    leases = app.catalog.load_table("audit.leases").scan().to_arrow()
    history = pa.table({"room_id": ["!a"]})
    for name in HISTORY:
        app.catalog.create_namespace_if_not_exists(name.partition(".")[0])
        app.catalog.create_table_if_not_exists(name, history.schema).append(history)
    assert former_files
    assert discard_earlier_format.is_earlier(app.catalog)

    with duckdb_reader.open_duckdb(lake.settings) as connection, pytest.raises(EarlierFormatError):
        duckdb_reader.require_current_format(connection, lake.settings)

    replace_earlier_lake(app.catalog)
    assert store.read_releases(app.catalog) == []
    assert not discard_earlier_format.is_earlier(app.catalog)
    assert app.catalog.load_table("audit.leases").scan().to_arrow() == leases
    for name in HISTORY:
        assert app.catalog.load_table(name).scan().to_arrow()["room_id"].to_pylist() == ["!a"]
    retained = {
        name: app.catalog.load_table(name) for name in discard_earlier_format.RETAINED & store.AUDIT_SCHEMAS.keys()
    }
    for name, table in retained.items():
        assert set(table.schema().as_arrow().names) == set(store.AUDIT_SCHEMAS[name].names)
    (run,) = retained[COMPRESSION_RUNS_TABLE].scan().to_arrow().to_pylist()
    assert (run["room_id"], run["outcome"], run["groups_skipped"]) == ("!a", "restored", 3)
    assert add_recorded_ids(app.catalog, {"events": [(1, 1)]}) == {"events": [(1, 1), (5, 7)]}
    (gap,) = app.catalog.load_table("audit.stream_gaps").scan().to_arrow().to_pylist()
    assert (gap["evidence"], gap["flags"]) == ("event_json", ["acknowledged"])

    ledger = lake.advance()
    assert lake.compare_with_source() == {}
    assert {row["extent"] for row in ledger.values()} == {"full"}
    assert [release.number for release in store.read_releases(app.catalog)] == [1]
    assert count_tables_by_commands(lake.settings) > 0
    remaining = former_files & set((PLACE / "warehouse").rglob("*.parquet"))
    assert {file.relative_to(PLACE / "warehouse").parts[:2] for file in remaining} <= {
        tuple(name.split(".")) for name in discard_earlier_format.RETAINED | {"audit.stream_gaps"}
    }


def acknowledge(catalog: Catalog, stream: str, first: int, last: int) -> None:
    """Record an acknowledged range of lost stream IDs as the earlier format did."""
    row = {"stream": stream, "first_id": first, "last_id": last, "class": "lost", "witness": "event_json"}
    table = catalog.load_table("audit.stream_gaps")
    schema = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([row | {"flags": ["acknowledged"]}, row | {"flags": []}], schema=schema))


def count_tables_by_commands(settings: Settings) -> int:
    """Return the number of copied tables that commands read from the latest release."""
    with duckdb_reader.open_duckdb(settings) as connection:
        duckdb_reader.require_current_format(connection, settings)
        release = duckdb_reader.get_release(connection, settings, None)
        summary = release_summary.read_summary(connection, settings, release)
        gaps.read_gaps(connection, settings, release, is_latest=True)
        return len(summary.tables)
