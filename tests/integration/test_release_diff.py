"""``lakehouse diff`` compares two releases of a small lake, without a JVM."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.write.tables import ensure_audit_tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.report.release_diff import ReleaseDiff, read_release_diff
from synapse_lakehouse.report.table_diff import TableDiff, prepare_comparison
from tests.conftest import lake_maker
from tests.support.two_releases import RUNS

TEXT = {"bronze.events": ("event_id", "room_id", "sender"), "bronze.rooms": ("room_id",),
        "bronze.erased_users": ("user_id",),
        "gold.state_integrity": ("check_name", "severity", "room_id", "subject")}  # fmt: skip
SCHEMAS_OF = {name: pa.schema([(column, pa.string()) for column in columns]) for name, columns in TEXT.items()}
SCHEMAS_OF["bronze.users"] = pa.schema([("name", pa.string()), ("creation_ts", pa.int64())])

SECRET = "the body of a message"
Rows = dict[str, list[tuple[Any, ...]]]

BEFORE: Rows = {
    "bronze.events": [("$1", "!old", "a"), ("$2", "!old", "a"), ("$3", "!gone", "a")],
    "bronze.rooms": [("!old",), ("!gone",)],
    "bronze.users": [("@old:x", 1), ("@erased:x", 2)],
    "bronze.erased_users": [],
    "gold.state_integrity": [("state_reset", "warn", "!old", "m.room.name "), ("room_missing", "fail", "!gone", "$3")],
}
AFTER: Rows = {
    "bronze.events": [("$1", "!old", SECRET), ("$2", "!old", "a"), ("$4", "!new", "a"), ("$5", "!new", "a"),
                      ("$6", "!old", "a")],
    "bronze.rooms": [("!old",), ("!new",)],
    "bronze.users": [("@old:x", 1), ("@erased:x", 2), ("@new:x", 3), ("@new-erased:x", 4)],
    "bronze.erased_users": [("@new-erased:x",)],
    "gold.state_integrity": [("state_reset", "warn", "!old", "m.room.name "), ("event_lost", "fail", "!old", "$9")],
}  # fmt: skip


@pytest.fixture(scope="module")
def make(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Settings]]:
    with lake_maker(server, settings, tmp_path_factory.mktemp("diffs")) as maker:
        yield maker


@contextmanager
def empty_lake(settings: Settings) -> Iterator[Catalog]:
    with closing(open_catalog(settings)) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        ensure_audit_tables(catalog)
        for name, columns in SCHEMAS_OF.items():
            catalog.create_table(name, columns)
        yield catalog


def publish(catalog: Catalog, number: int, contents: Rows) -> None:
    """Replace the tables' rows, and publish them."""
    for name, rows in contents.items():
        columns = SCHEMAS_OF[name]
        arrow = pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], schema=columns)
        catalog.load_table(name).overwrite(arrow)
    heads = {name: catalog.load_table(name).refs()["main"].snapshot_id for name in SCHEMAS_OF}
    run = RUNS[number - 1]
    row = {"release": number, "server_name": "x", "tables": sorted(heads.items()), "positions": [], "views": []}
    at = run.end + timedelta(hours=1)
    store.append_audit_rows(catalog, "audit.releases", [row | {"published_at": at, "accepted_at": at}], run)


@pytest.fixture(scope="module")
def lake(make: Callable[..., Settings]) -> Settings:
    settings = make()
    with empty_lake(settings) as catalog:
        publish(catalog, 1, BEFORE)
        publish(catalog, 2, AFTER)
        publish(catalog, 3, {"bronze.rooms": AFTER["bronze.rooms"]})
    return settings


def read(settings: Settings, *arguments: Any) -> ReleaseDiff:
    with duckdb_reader.open_duckdb(settings) as connection:
        return read_release_diff(connection, settings, *arguments)


def by_table(difference: ReleaseDiff) -> dict[str, tuple[int | None, ...]]:
    return {
        row.table: (row.rows_before, row.rows_after, row.added, row.changed, row.removed) for row in difference.tables
    }


def test_rows_are_compared_by_key_and_content(lake: Settings) -> None:
    assert by_table(read(lake, (1, 2))) == {
        "bronze.erased_users": (0, 1, 1, 0, 0),
        "bronze.events": (3, 5, 3, 1, 1),
        "bronze.rooms": (2, 2, 1, 0, 1),
        "bronze.users": (2, 4, 2, 0, 0),
        "gold.state_integrity": (2, 2, 1, 0, 1),
    }


def test_the_newest_two_releases_are_compared(lake: Settings) -> None:
    difference = read(lake)
    assert (difference.before.number, difference.after.number) == (2, 3)
    assert all(table.is_unchanged for table in difference.tables), "a file with the same rows was written again"


def test_the_order_of_releases_does_not_matter(lake: Settings) -> None:
    assert by_table(read(lake, (2, 1))) == by_table(read(lake, (1, 2)))


def test_rooms_are_new_or_grow(lake: Settings) -> None:
    difference = read(lake, (1, 2))
    assert difference.new_rooms == 1
    assert [(room.room_id, room.before, room.after) for room in difference.rooms] == [("!new", None, 2), ("!old", 2, 3)]


def test_an_erased_user_is_counted_without_a_name(lake: Settings) -> None:
    difference = read(lake, (1, 2))
    assert (difference.new_users, difference.users) == (2, ["@new:x"])


def test_new_and_resolved_findings_are_counted(lake: Settings) -> None:
    findings = read(lake, (1, 2)).findings
    assert {(row.check, row.new, row.resolved) for row in findings} == {("event_lost", 1, 0), ("room_missing", 0, 1)}


def test_large_tables_are_not_compared(lake: Settings) -> None:
    rows = {row.table: row for row in read(lake, (1, 2), 7).tables}
    assert rows["bronze.erased_users"].added == 1
    events = rows["bronze.events"]
    assert (events.rows_after, events.added, events.changed, events.removed) == (5, None, None, None)
    assert events.note


@pytest.mark.parametrize("numbers", [(1, 9), (9, None), (None, 1)])
def test_an_unknown_release_is_an_error(lake: Settings, numbers: tuple[int | None, int | None]) -> None:
    with pytest.raises(LakeReadError):
        read(lake, numbers)


def test_an_expired_release_cannot_be_compared(make: Callable[..., Settings]) -> None:
    settings = make()
    with empty_lake(settings) as catalog:
        publish(catalog, 1, BEFORE)
        before = catalog.load_table("bronze.users").refs()["main"].snapshot_id
        publish(catalog, 2, AFTER)
        catalog.load_table("bronze.users").maintenance.expire_snapshots().by_id(before).commit()
    with pytest.raises(LakeReadError):
        read(settings, (1, 2))


@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_the_command_prints_every_format(lake: Settings, format: str) -> None:
    result = CliRunner().invoke(
        app, ["diff", "1", "2", "--format", format], env=lake.to_environment() | {"COLUMNS": "120"}
    )
    assert result.exit_code == 0, result.output
    assert "@new:x" in result.stdout
    assert "@new-erased:x" not in result.stdout
    assert SECRET not in result.stdout
    if format == "json":
        kinds = Counter(row["kind"] for row in json.loads(result.stdout))
        assert kinds == {"table": 5, "new room": 1, "room": 1, "new user": 1, "finding": 2}


KEYS = st.one_of(st.none(), st.sampled_from("abc"))
ROWS = st.lists(st.tuples(KEYS, KEYS, st.sampled_from("xy")), max_size=6)


@hypothesis_settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, ROWS)
def test_differences_obey_multisets(lake: Settings, before: list[Any], after: list[Any]) -> None:
    """Rows of a key in both releases are changed unless all contents are equal; surplus rows are added or removed."""
    table_diff = compare(lake, before, after)
    keys = {row[:2] for row in [*before, *after]}
    counts = [(Counter(r for r in before if r[:2] == key), Counter(r for r in after if r[:2] == key)) for key in keys]
    added = sum(max(0, new.total() - old.total()) for old, new in counts)
    removed = sum(max(0, old.total() - new.total()) for old, new in counts)
    changed = sum(min(old.total(), new.total()) for old, new in counts if old != new)
    assert (table_diff.added, table_diff.changed, table_diff.removed) == (added, changed, removed)


def compare(settings: Settings, before: list[Any], after: list[Any]) -> TableDiff:
    """Return the difference between two contents of a table, whose key is the first two columns."""
    columns = SCHEMAS_OF["bronze.events"]
    with closing(open_catalog(settings)) as catalog, duckdb_reader.open_duckdb(settings) as connection:
        catalog.create_table("gold.any", columns)
        try:
            snapshots = []
            for rows in (before, after):
                table = catalog.load_table("gold.any")
                table.overwrite(
                    pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], schema=columns)
                )
                snapshots.append(table.refs()["main"].snapshot_id)
            location = catalog.load_table("gold.any").metadata_location
            return prepare_comparison(connection, "gold.any", location, *snapshots).compare(
                connection, columns.names[:2]
            )
        finally:
            catalog.drop_table("gold.any")
