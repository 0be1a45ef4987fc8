"""Reads of the audit tables: the rows of the last try, without a scan of all history."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.expressions import EqualTo

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import RELEASES_TABLE, Release
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.replication.coverage import measure_coverage

DAY = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUN = Run("run", DAY, DAY + timedelta(days=1))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Return a lake with empty audit tables."""
    catalog = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    tables.ensure_audit_tables(catalog)
    return catalog


def _publish(catalog: Catalog, numbers: Sequence[int]) -> None:
    """Write releases to one file, as a compaction of the table does."""
    columns = {"tables": [("gold.events", 1)], "positions": [], "views": [], "published_at": DAY, "accepted_at": DAY}
    store.append_audit_rows(catalog, RELEASES_TABLE, [columns | {"release": number} for number in numbers], RUN)


@given(files=st.lists(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=3), max_size=4))
def test_the_latest_release_has_the_highest_number(
    files: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    catalog = InMemoryCatalog("lake", warehouse=tmp_path_factory.mktemp("lake").as_uri())
    catalog.create_namespace("audit")
    catalog.create_table(RELEASES_TABLE, schema=store.AUDIT_SCHEMAS[RELEASES_TABLE])
    distinct_numbers = iter(dict.fromkeys(number for file in files for number in file))
    distinct_files = [[number for _, number in zip(file, distinct_numbers, strict=False)] for file in files]
    for file in filter(None, distinct_files):
        _publish(catalog, file)
    expected = sorted((number for file in distinct_files for number in file), reverse=True)
    assert [release.number for release in store.iterate_newest_releases(catalog)] == expected
    latest = store.read_latest_release(catalog)
    assert (latest.number if latest else None) == next(iter(expected), None)


def test_rows_of_a_run_are_read_from_its_own_files(catalog: Catalog) -> None:
    names = [f"scheduled__2026-05-0{day}T00:00:00+00:00" for day in range(1, 6)]
    for run_id in names:
        store.append_audit_rows(catalog, "audit.snapshots", [{"taken_at": DAY}], replace(RUN, run_id=run_id))
    run_filter = EqualTo(term="run_id", value=names[2])
    assert len(list(catalog.load_table("audit.snapshots").scan(row_filter=run_filter).plan_files())) == 1
    assert [row["run_id"] for row in store.read_run_rows(catalog, "audit.snapshots", names[2])] == [names[2]]


def test_the_latest_release_is_read_from_one_file(catalog: Catalog) -> None:
    for number in range(1, 6):
        _publish(catalog, [number])
    files = [task.file.file_path for task in catalog.load_table(RELEASES_TABLE).scan().plan_files()]
    oldest, *_ = sorted(files, key=lambda file: Path(file.removeprefix("file://")).stat().st_mtime_ns)
    Path(oldest.removeprefix("file://")).unlink()
    latest = store.read_latest_release(catalog)
    assert latest is not None
    assert (latest.number, latest.tables) == (5, {"gold.events": 1})
    with pytest.raises(FileNotFoundError):
        store.read_releases(catalog)


def test_many_commits_leave_few_manifests(catalog: Catalog) -> None:
    for _ in range(35):
        store.append_audit_rows(catalog, "audit.snapshots", [{"branch": "b"}], RUN)
    table = catalog.load_table("audit.snapshots")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 11
    assert catalog.load_table("audit.snapshots").scan().count() == 35


def test_manifest_merging_is_enabled_in_an_older_lake(catalog: Catalog) -> None:
    name = "commit.manifest-merge.enabled"
    with catalog.load_table("audit.ledger").transaction() as transaction:
        transaction.remove_properties(name)
    tables.ensure_audit_tables(catalog)
    assert catalog.load_table("audit.ledger").properties[name] == "true"


def _start_try(catalog: Catalog, hour: int, **columns: object) -> None:
    store.append_audit_rows(
        catalog, "audit.snapshots", [{"taken_at": DAY, "began_at": DAY + hour * HOUR, **columns}], RUN
    )


def _record_copies(catalog: Catalog, hour: float, *tables: str) -> None:
    rows = [{"table_name": name, "rows_read": int(hour), "written_at": DAY + hour * HOUR} for name in tables]
    store.append_audit_rows(catalog, "audit.ledger", rows, RUN)


def _rows_read_by_table(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["table_name"]: row["rows_read"] for row in rows}


def test_only_rows_of_the_last_try_of_a_run_are_read(catalog: Catalog) -> None:
    _start_try(catalog, 1)
    _record_copies(catalog, 1.5, "events", "rooms")
    assert store.is_copy_complete(catalog, RUN)
    assert _rows_read_by_table(store.read_run_rows(catalog, "audit.ledger", RUN.run_id)) == {"events": 1, "rooms": 1}

    _start_try(catalog, 2)
    assert not store.is_copy_complete(catalog, RUN)
    assert store.read_run_rows(catalog, "audit.ledger", RUN.run_id) == []
    _record_copies(catalog, 2.5, "events")
    _record_copies(catalog, 3, "events")
    assert _rows_read_by_table(store.read_run_rows(catalog, "audit.ledger", RUN.run_id)) == {"events": 3}


def test_a_release_has_the_rows_of_its_own_try(catalog: Catalog) -> None:
    _start_try(catalog, 1)
    _record_copies(catalog, 1.5, "events", "rooms")
    _start_try(catalog, 2)
    _record_copies(catalog, 2.5, "events")
    release = _release(catalog, published_hour=3)
    _start_try(catalog, 4)
    _record_copies(catalog, 4.5, "events", "rooms")
    assert _rows_read_by_table(store.read_release_rows(catalog, "audit.ledger", release)) == {"events": 2}
    (row,) = store.read_release_rows(catalog, "audit.snapshots", release)
    assert row["began_at"] == DAY + 2 * HOUR


def test_all_rows_of_a_run_without_a_try_are_read(catalog: Catalog) -> None:
    """A compression run has no row in audit.snapshots."""
    _record_copies(catalog, 1.5, "events", "rooms")
    _record_copies(catalog, 2.5, "events")
    assert _rows_read_by_table(store.read_run_rows(catalog, "audit.ledger", RUN.run_id)) == {"events": 2, "rooms": 1}
    assert store.read_run_rows(catalog, "audit.snapshots", RUN.run_id) == []


def test_coverage_starts_at_the_last_compared_release(catalog: Catalog) -> None:
    def compare(run: Run, hour: int) -> None:
        store.append_audit_rows(catalog, "audit.snapshots", [{"began_at": DAY + hour * HOUR}], run)
        row = {"dialect": "redis", "stream": "events", "upto": hour, "measured_at": DAY + hour * HOUR}
        store.append_audit_rows(catalog, measure_coverage.TABLE, [row], run)

    first, second, third = (Run(name, RUN.start, RUN.end) for name in ("first", "second", "third"))
    assert measure_coverage.read_latest_rows(catalog) == []
    compare(first, 1)
    assert measure_coverage.read_latest_rows(catalog) == []
    _release(catalog, published_hour=2, run=first)
    compare(second, 3)
    _release(catalog, published_hour=4, run=second)
    store.append_audit_rows(catalog, "audit.snapshots", [{"began_at": DAY + 5 * HOUR}], third)
    _release(catalog, published_hour=6, run=third)
    compare(second, 7)
    compare(first, 8)
    assert [row["upto"] for row in measure_coverage.read_latest_rows(catalog)] == [3]


def _release(catalog: Catalog, published_hour: int, run: Run = RUN) -> Release:
    """Publish a release of ``run``, and return it."""
    number, moment = len(store.read_releases(catalog)) + 1, DAY + published_hour * HOUR
    row = {"release": number, "tables": [], "positions": [], "views": [], "published_at": moment}
    store.append_audit_rows(catalog, RELEASES_TABLE, [row | {"accepted_at": moment}], run)
    release = store.read_latest_release(catalog)
    assert release is not None
    return release
