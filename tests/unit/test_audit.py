"""Reading the audit tables costs what is asked for, not what was ever written."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog

from synapse_lakehouse.lake import audit, tables
from synapse_lakehouse.lake.release import TABLE
from synapse_lakehouse.run import Run

DAY = datetime(2026, 5, 1, tzinfo=UTC)
RUN = Run("run", DAY, DAY + timedelta(days=1))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A lake with empty audit tables."""
    catalog = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    tables.ensure_audit(catalog)
    return catalog


def _publish(catalog: Catalog, numbers: Sequence[int]) -> None:
    """Releases in one file, as a compaction of the table leaves them."""
    told = {"tables": [("gold.events", 1)], "positions": [], "views": [], "published_at": DAY}
    audit.append(catalog, TABLE, [told | {"release": number} for number in numbers], RUN)


@given(files=st.lists(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=3), max_size=4))
def test_the_latest_release_is_the_one_with_the_highest_number_in_whatever_file(
    files: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    catalog = InMemoryCatalog("lake", warehouse=tmp_path_factory.mktemp("lake").as_uri())
    catalog.create_namespace("audit")
    catalog.create_table(TABLE, schema=audit.TABLES[TABLE])
    distinct = iter(dict.fromkeys(number for file in files for number in file))
    kept = [[number for number, _ in zip(distinct, file, strict=False)] for file in files]
    for file in filter(None, kept):
        _publish(catalog, file)
    everything = sorted((number for file in kept for number in file), reverse=True)
    assert [one.number for one in audit.newest_first(catalog)] == everything
    latest = audit.latest(catalog)
    assert (latest.number if latest else None) == next(iter(everything), None)


def test_the_latest_release_is_read_from_one_file(catalog: Catalog) -> None:
    for number in range(1, 6):
        _publish(catalog, [number])
    files = [task.file.file_path for task in catalog.load_table(TABLE).scan().plan_files()]
    oldest, *_ = sorted(files, key=lambda file: Path(file.removeprefix("file://")).stat().st_mtime_ns)
    Path(oldest.removeprefix("file://")).unlink()
    latest = audit.latest(catalog)
    assert latest is not None
    assert (latest.number, latest.tables) == (5, {"gold.events": 1})
    with pytest.raises(FileNotFoundError):
        audit.releases(catalog)


def test_many_commits_leave_few_manifests(catalog: Catalog) -> None:
    for _ in range(35):
        audit.append(catalog, "audit.snapshots", [{"branch": "b"}], RUN)
    table = catalog.load_table("audit.snapshots")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 11
    assert len(audit._of_run(catalog, "audit.snapshots", RUN.run_id)) == 35


def test_a_lake_of_an_earlier_version_gathers_its_manifests_too(catalog: Catalog) -> None:
    name = "commit.manifest-merge.enabled"
    with catalog.load_table("audit.ledger").transaction() as change:
        change.remove_properties(name)
    tables.ensure_audit(catalog)
    assert catalog.load_table("audit.ledger").properties[name] == "true"
