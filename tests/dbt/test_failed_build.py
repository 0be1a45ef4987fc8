"""A failed build_models on the published lake names the failed tests, and main stays unchanged."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import branches
from tests.conftest import Published, run_app

RUN = Run("test_gate", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))


@pytest.fixture
def catalog(published: Published) -> Iterator[Catalog]:
    catalog = open_catalog(published.settings)
    yield catalog
    branches.drop_branch(catalog, RUN.branch)


def _mains(catalog: Catalog) -> dict[str, int]:
    return {
        ".".join(table.name()): table.refs()["main"].snapshot_id
        for table in branches.load_run_tables(catalog)
        if "main" in table.refs()
    }


def _repeat_a_row(catalog: Catalog, table: str) -> None:
    """Add a copy of a row to ``table`` on the run's branch, as if the audit of bronze had missed it."""
    loaded = catalog.load_table(table)
    loaded.manage_snapshots().create_branch(loaded.refs()["main"].snapshot_id, RUN.branch).commit()
    loaded.append(loaded.scan(limit=1).to_arrow(), branch=RUN.branch)


def test_failed_tests_are_named_and_main_stays(catalog: Catalog, published: Published) -> None:
    before = _mains(catalog)
    assert before["gold.events"]
    assert before["gold.current_rooms"]
    _repeat_a_row(catalog, "bronze.event_relations")

    result = run_app("build_models", published.settings, RUN)

    assert result.returncode == 1
    assert "progress: gold.events: success" in result.stdout
    assert "progress: gold.current_rooms: skipped" in result.stdout
    explained = result.stderr[result.stderr.index("error: ") :]
    assert "nothing is published" in explained
    assert "test events_has_one_row_for_each_event: 1 rows violate it" in explained
    assert explained.count("violate it") == 1
    assert "Traceback" not in result.stderr
    # what is made of the same as before was left as it is
    on_branch = {".".join(table.name()) for table in branches.load_run_tables(catalog) if RUN.branch in table.refs()}
    assert on_branch == {
        "bronze.event_relations", "gold.events", "silver.room_cleanup_rows",
        "silver.unmatched_references", "silver.reference_faults", "silver.reference_findings",
    }  # fmt: skip
    # what was built stays on the branch, and only there
    rows = {ref: _rows(catalog, "gold.events", ref) for ref in ("main", RUN.branch)}
    assert rows[RUN.branch] == rows["main"] + 1
    assert _mains(catalog) == before


def _rows(catalog: Catalog, table: str, ref: str) -> int:
    loaded = catalog.load_table(table)
    return int(loaded.scan(snapshot_id=loaded.refs()[ref].snapshot_id).count())
