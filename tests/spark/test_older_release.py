"""A database of an older release is copied in full; absent tables are empty, and absent streams not measured."""

from collections.abc import Iterator

import psycopg
import pytest

from expectations.validate import validate_bronze
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.streams import pipeline
from tests.conftest import copied_source, lake_maker
from tests.support.dataframe_compare import differences
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake
from tests.support.older_source import Source, hide_additions, show_additions

DECLARED = catalogue.load_catalogue()


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    folder = tmp_path_factory.mktemp("older")
    with (
        copied_source(server) as dsn,
        lake_maker(server, settings, folder) as make,
        open_incremental_lake(make(synapse_dsn=dsn)) as lake,
    ):
        yield lake


@pytest.fixture(scope="module")
def source(lake: IncrementalLake) -> Iterator[Source]:
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def absent_tables(source: Source) -> set[str]:
    return hide_additions(source, DECLARED)


def copy_and_measure(lake: IncrementalLake) -> tuple[set[str], list[str], dict[str, str]]:
    """Copy, measure and publish; return the streams, the subjects of failed checks, and the extents by table."""
    app = lake.app()
    tables.ensure_tables(app.catalog, DECLARED)
    with snapshot_session(app) as session:
        copy_tables(session)
        record_measured_tables(app, session.catalogue, session.connection)
    report = pipeline.measure(app)
    report.append(app.catalog, app.run)
    checks = validate_bronze(lake.settings, app.catalog, app.run).checks
    lake.publish(app)
    streams = {row["stream"] for row in report.stream_positions}
    extents = {row["table_name"]: row["extent"] for row in lake.ledger(app)}
    return streams, [check.subject for check in checks if not check.success], extents


def compare_with_source(lake: IncrementalLake, absent_tables: set[str]) -> dict[str, tuple[int, int]]:
    with (
        duckdb_reader.open_duckdb(lake.settings) as connection,
        psycopg.connect(str(lake.settings.synapse_dsn)) as source,
    ):
        release = duckdb_reader.get_release(connection, lake.settings)
        duckdb_reader.create_views(connection, lake.settings, release, release.tables)
        source_tables = DECLARED.restrict_to_source(absent_tables).copied_tables()
        actual = {table.name: differences(table, connection, source) for table in source_tables}
        for table in DECLARED.copied_tables():
            if table.name in absent_tables:
                (rows,) = connection.execute(f"select count(*) from bronze.{table.name}").fetchone() or (0,)
                actual[table.name] = (rows, 0)
    return {name: counts for name, counts in actual.items() if counts != (0, 0)}


def test_an_older_release_is_copied_and_upgraded(
    lake: IncrementalLake, source: Source, absent_tables: set[str]
) -> None:
    copied_tables = {table.name for table in DECLARED.copied_tables()}
    streams, failed_checks, extents = copy_and_measure(lake)
    assert streams == {stream.name for stream in DECLARED.streams if not DECLARED.is_evolving(stream)}
    # The hidden tables have other names.
    assert failed_checks == ["schema of the source"]
    assert extents.keys() == copied_tables
    assert {name for name, extent in extents.items() if extent == "absent"} == absent_tables & copied_tables
    assert compare_with_source(lake, absent_tables) == {}
    (release,) = store.read_releases(lake.app().catalog)
    assert {f"bronze.{name}" for name in copied_tables} <= release.tables.keys()
    (snapshot,) = store.read_run_rows(lake.app().catalog, "audit.snapshots", release.run_id)
    assert set(snapshot["absent_objects"]) == absent_tables

    show_additions(source, DECLARED)
    streams, failed_checks, extents = copy_and_measure(lake)
    assert streams == {stream.name for stream in DECLARED.streams}
    assert failed_checks == []
    assert {name for name, extent in extents.items() if extent == "full"} == {
        name.partition(".")[0] for name in absent_tables
    }
    assert lake.compare_with_source() == {}
