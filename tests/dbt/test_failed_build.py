"""A failed build_models on the published lake reports the failed tests, and leaves main unchanged."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import branches
from tests.conftest import PublishedLake, run_app

RUN = Run("test_gate", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))


@pytest.fixture
def catalog(published: PublishedLake) -> Iterator[Catalog]:
    catalog = open_catalog(published.settings)
    yield catalog
    branches.drop_branch(catalog, RUN.branch)


def _read_main_snapshot_ids(catalog: Catalog) -> dict[str, int]:
    return {
        ".".join(table.name()): table.refs()["main"].snapshot_id
        for table in branches.load_run_tables(catalog)
        if "main" in table.refs()
    }


def _duplicate_row(catalog: Catalog, table: str) -> None:
    """Add a copy of a row to ``table`` on the run's branch, as if the audit of bronze had missed it."""
    iceberg_table = catalog.load_table(table)
    iceberg_table.manage_snapshots().create_branch(iceberg_table.refs()["main"].snapshot_id, RUN.branch).commit()
    iceberg_table.append(iceberg_table.scan(limit=1).to_arrow(), branch=RUN.branch)


def test_failed_tests_are_reported_and_main_is_unchanged(catalog: Catalog, published: PublishedLake) -> None:
    before = _read_main_snapshot_ids(catalog)
    assert before["gold.events"]
    assert before["gold.current_rooms"]
    _duplicate_row(catalog, "bronze.event_relations")

    result = run_app("build_models", published.settings, RUN)

    assert result.returncode == 1
    assert "progress: gold.events: success" in result.stdout
    assert "progress: gold.current_rooms: skipped" in result.stdout
    message = result.stderr[result.stderr.index("error: ") :]
    assert "nothing is published" in message
    assert "test events_has_one_row_for_each_event: 1 rows violate it" in message
    assert message.count("violate it") == 1
    assert "Traceback" not in result.stderr
    # A model with unchanged inputs has no branch.
    branch_tables = {
        ".".join(table.name()) for table in branches.load_run_tables(catalog) if RUN.branch in table.refs()
    }
    assert branch_tables == {
        "bronze.event_relations", "gold.events", "silver.room_cleanup_rows",
        "silver.unmatched_references", "silver.reference_faults", "silver.reference_findings",
    }  # fmt: skip
    # The new rows are only on the branch.
    row_counts = {ref: _count_rows(catalog, "gold.events", ref) for ref in ("main", RUN.branch)}
    assert row_counts[RUN.branch] == row_counts["main"] + 1
    assert _read_main_snapshot_ids(catalog) == before


def _count_rows(catalog: Catalog, table: str, ref: str) -> int:
    iceberg_table = catalog.load_table(table)
    return int(iceberg_table.scan(snapshot_id=iceberg_table.refs()[ref].snapshot_id).count())
