"""After a change of Synapse's schema, tables that fit are copied, and the other tables keep their content."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import copied_source, lake_maker
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake

Source = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    """Yield a lake that equals its source before and after each test."""
    folder = tmp_path_factory.mktemp("drift")
    with (
        copied_source(server) as dsn,
        lake_maker(server, settings, folder) as make,
        open_incremental_lake(make(synapse_dsn=dsn, lakehouse_on_drift="partial")) as lake,
    ):
        lake.advance()
        yield lake


@pytest.fixture
def source(lake: IncrementalLake) -> Iterator[Source]:
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        yield connection


def test_a_drifted_table_keeps_its_content(lake: IncrementalLake, source: Source) -> None:
    differences_before = lake.compare_with_source()
    source.execute("alter table room_depth drop column min_depth")
    source.execute("alter table threads alter column topological_ordering type text")
    source.execute("create table polls (id bigint)")
    source.execute("update rooms set creator = '@somebody:else'")
    ledger = lake.advance()
    assert differences_before == {}
    assert {"room_depth", "threads"} & ledger.keys() == set()
    assert ledger["rooms"]["extent"] != "none"
    first, second = store.read_releases(lake.app().catalog)
    assert (first.partial, second.partial) == ((), ("room_depth", "threads"))
    for name in second.partial:
        assert first.tables[f"bronze.{name}"] == second.tables[f"bronze.{name}"]
    (snapshot,) = store.read_run_rows(lake.app().catalog, "audit.snapshots", second.run_id)
    assert snapshot["unknown_objects"] == ["polls"]
    assert "min_depth" in dict(snapshot["drifted_tables"])["room_depth"]

    source.execute("alter table room_depth add column min_depth bigint default 7")
    source.execute(
        "alter table threads alter column topological_ordering type bigint using topological_ordering::bigint"
    )
    lake.advance()
    assert lake.compare_with_source() == {}
    assert store.read_releases(lake.app().catalog)[-1].partial == ()


def test_a_recreated_column_is_read_again(lake: IncrementalLake, source: Source) -> None:
    source.execute("alter table room_depth drop column min_depth")
    source.execute("alter table room_depth add column min_depth bigint default 7")
    assert lake.advance()["room_depth"]["extent"] == "full"
    assert lake.compare_with_source() == {}


def test_by_default_nothing_is_copied(new_lake: Callable[..., Settings], source_copy: str) -> None:
    with psycopg.connect(source_copy) as source:
        source.execute("alter table room_depth drop column min_depth")
    with open_incremental_lake(new_lake(synapse_dsn=source_copy)) as lake:
        with pytest.raises(SourceError, match=r"room_depth .*min_depth"):
            lake.advance()
        assert store.read_releases(lake.app().catalog) == []


def test_new_columns_keep_the_ids_of_the_others() -> None:
    declared = catalogue.load_catalogue()
    table = declared.table("rooms")
    older_table = table.model_copy(
        update={"columns": tuple(column for column in table.columns if column.name != "creator")}
    )
    lake = InMemoryCatalog("lake")
    tables.ensure_tables(lake, declared.model_copy(update={"tables": (older_table,)}))
    ids_before = {field.name: field.field_id for field in lake.load_table("bronze.rooms").schema().fields}
    tables.ensure_tables(lake, declared.model_copy(update={"tables": (table,)}))
    ids_after = {field.name: field.field_id for field in lake.load_table("bronze.rooms").schema().fields}
    assert ids_after == ids_before | {"creator": max(ids_before.values()) + 1}
    tables.ensure_tables(lake, declared.model_copy(update={"tables": (older_table,)}))
    assert {field.name for field in lake.load_table("bronze.rooms").schema().fields} == set(ids_after)


def test_a_retry_publishes_nothing_of_a_drifted_table(lake: IncrementalLake, source: Source) -> None:
    release_before = store.read_latest_release(lake.app().catalog)
    assert release_before
    first_app = lake.app()
    source.execute("update room_depth set min_depth = min_depth + 1")
    lake.copy(first_app)
    lake.measure(first_app)
    source.execute("alter table room_depth drop column min_depth")
    retry_app = SparkApp("test", first_app.run, lake.settings)
    lake.copy(retry_app)
    assert "room_depth" not in {row["table_name"] for row in lake.ledger(retry_app)}
    # Each task has its own session, which has cached no table.
    retry_app.spark.sql("refresh table bronze.room_depth")
    lake.publish(retry_app)
    latest = store.read_latest_release(retry_app.catalog)
    assert latest
    assert latest.partial == ("room_depth",)
    assert latest.tables["bronze.room_depth"] == release_before.tables["bronze.room_depth"]
    assert first_app.run.branch not in retry_app.catalog.load_table("bronze.room_depth").refs()
