"""``lakehouse doctor`` reports pending background updates, the collation, and PostgreSQL's end of support."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.report.update_history import PendingUpdate, Sighting, read_pending_updates
from tests.support.doctor import Examine

BEGIN = datetime(2026, 11, 18, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def empty_lake(new_lake: Callable[..., Settings]) -> dict[str, object]:
    """Return settings of a lake without releases, because `doctor` also reports updates of the latest release."""
    settings = new_lake()
    return {name: getattr(settings, name) for name in ("lakehouse_catalog_uri", "lakehouse_warehouse")}


def test_a_database_without_pending_updates_is_ready(
    examine: Examine, reader: str, source_copy: str, empty_lake: dict[str, object]
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("delete from background_updates")
    _, findings = examine(synapse_dsn=reader, **empty_lake)
    assert [finding["level"] for finding in findings["background updates"]] == ["OK"]
    assert [finding["level"] for finding in findings["collation"]] == ["OK"]
    assert len(findings["PostgreSQL"]) == 1


def test_pending_updates_are_listed_with_their_dependencies(
    examine: Examine, reader: str, source_copy: str, empty_lake: dict[str, object]
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("delete from background_updates")
        owner.execute(
            "insert into background_updates (update_name, progress_json, depends_on, ordering)"
            " values ('second', '{}', 'first', 2), ('first', '{\"remaining\": 5}', null, 1)"
        )
    _, findings = examine(synapse_dsn=reader, **empty_lake)
    (finding,) = findings["background updates"]
    assert finding["level"] == "WARN"
    assert "first, second (after first)" in finding["message"]


def test_another_collation_warns(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("set allow_system_table_mods = on")
        owner.execute("update pg_database set datctype = 'C.UTF-8' where datname = current_database()")
    _, findings = examine(synapse_dsn=source_copy)
    assert [finding["level"] for finding in findings["collation"]] == ["WARN"]


@pytest.fixture
def lake(new_lake: Callable[..., Settings]) -> Settings:
    """Return a lake with five releases. Three updates are pending in the last one; only the first has progressed."""
    settings = new_lake(synapse_server_name="example.org")
    contents: list[list[dict[str, Any]]] = [
        [{"update_name": "first", "progress_json": "{}"}],
        [],
        [{"update_name": "first", "progress_json": "{}", "progress_digest": "a"}],
        [
            {"update_name": "first", "progress_json": "{}", "progress_digest": "b"},
            {"update_name": "second", "depends_on": "first"},
        ],
        [
            {"update_name": "first", "progress_json": "{}", "progress_digest": "b"},
            {"update_name": "second", "depends_on": "first"},
            {"update_name": "third"},
        ],
    ]
    columns = ("update_name", "depends_on", "progress_json", "progress_digest")
    schema = pa.schema([(name, pa.string()) for name in columns] + [("ordering", pa.int32())])
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        catalog.create_namespace_if_not_exists("bronze")
        table = catalog.create_table("bronze.background_updates", schema=schema)
        for number, rows in enumerate(contents, start=1):
            ordered = [{"ordering": index} | row for index, row in enumerate(rows)]
            table.overwrite(pa.Table.from_pylist(ordered, schema=schema))
            snapshot = table.current_snapshot()
            assert snapshot
            store.append_audit_rows(
                catalog,
                "audit.releases",
                [{
                    "release": number, "server_name": "example.org", "positions": [], "views": [],
                    "tables": [("bronze.background_updates", snapshot.snapshot_id)],
                    "published_at": BEGIN + number * DAY, "accepted_at": BEGIN + number * DAY,
                }],
                Run(f"run {number}", BEGIN, BEGIN + DAY),
            )  # fmt: skip
    return settings


def test_updates_are_pending_since_their_first_release(lake: Settings) -> None:
    with open_duckdb(lake) as connection:
        updates = read_pending_updates(connection, lake)
    third, fourth, fifth = (Sighting(number, BEGIN + number * DAY) for number in (3, 4, 5))
    assert updates == [
        PendingUpdate("first", None, "{}", third, fourth, False),
        PendingUpdate("second", "first", None, fourth, fourth, False),
        PendingUpdate("third", "first", None, fifth, fifth, True),
    ]
