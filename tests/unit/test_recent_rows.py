"""Rows since a run are read without the older rows of the same files."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.read.recent_rows import read_rows_since_run

DAY = datetime(2026, 5, 1, tzinfo=UTC)
SCHEMA = pa.schema([store.AUDIT_SCHEMAS["audit.snapshots"].field(name) for name in ("run_id", "taken_at")])
NAMES = [f"scheduled__2026-05-0{day}T00:00:00+00:00" for day in range(1, 5)]


@given(
    files=st.lists(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9)), min_size=1, max_size=3), max_size=5),
    run_id=st.sampled_from(NAMES),
    statistics=st.sampled_from(["full", "truncate(16)", "counts", "none"]),
)
def test_rows_since_a_run_are_never_missed(
    files: list[list[tuple[str, int]]], run_id: str, statistics: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moments = [minute for file in files for name, minute in file if name == run_id]
    # A run without rows has no first row.
    assume(moments)
    table = _create_table(tmp_path_factory, statistics)
    for file in files:
        _append_file(table, file)
    first = min(moments)
    expected = sorted((name, minute) for file in files for name, minute in file if minute >= first)
    actual = read_rows_since_run(table, run_id, "taken_at", ["run_id", "taken_at"]).to_pylist()
    actual_rows = sorted((row["run_id"], (row["taken_at"] - DAY) // timedelta(minutes=1)) for row in actual)
    assert [row for row in actual_rows if row[1] >= first] == expected


def test_files_that_are_older_than_the_run_are_not_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    table = _create_table(tmp_path_factory, "full")
    for minute, name in enumerate(NAMES):
        _append_file(table, [(name, minute)])
    assert read_rows_since_run(table, NAMES[2], "taken_at", ["run_id"])["run_id"].to_pylist() == NAMES[:1:-1]


def _create_table(folder: pytest.TempPathFactory, statistics: str) -> Table:
    lake = InMemoryCatalog("lake", warehouse=folder.mktemp("lake").as_uri())
    lake.create_namespace("audit")
    metrics = {"write.metadata.metrics.default": statistics}
    return lake.create_table("audit.snapshots", schema=SCHEMA, properties=metrics)


def _append_file(table: Table, file: list[tuple[str, int]]) -> None:
    """Append a file with one row for each run and minute."""
    rows = [{"run_id": name, "taken_at": DAY + timedelta(minutes=minute)} for name, minute in file]
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
