"""Read and append rows of the audit tables, which have no branches.

All tries of a run write rows with the same ``run_id``. Readers find the rows of the published try by the column
``accepted_at`` of ``audit.releases``. Times are in UTC.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from synapse_lakehouse.audit.releases import RELEASES_TABLE, Release
from synapse_lakehouse.audit.schemas import load_audit_tables
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.read.recent_rows import get_column_bounds, read_planned_files
from synapse_lakehouse.iceberg.write import append as write_append

AUDIT_SCHEMAS: Final[dict[str, pa.Schema]] = {name: table.schema for name, table in load_audit_tables().items()}
"""Columns of each audit table."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def append_audit_rows(catalog: Catalog, table: str, rows: list[dict[str, Any]], run: Run | None = None) -> None:
    """Append ``rows`` to ``table``. If ``run`` is given, its columns are added to each row. Absent columns are NULL."""
    run_columns = get_run_columns(run) if run else {}
    complete = pa.Table.from_pylist([run_columns | row for row in rows], schema=AUDIT_SCHEMAS[table])
    write_append.append_rows(catalog.load_table(table), complete)


def get_run_columns(run: Run) -> dict[str, Any]:
    """Return the columns by which a row identifies its run."""
    return {"run_id": run.run_id, "interval_start": run.start, "interval_end": run.end}


def read_run_rows(catalog: Catalog, table: str, run_id: str) -> list[dict[str, Any]]:
    """Return rows of ``table`` that the run's last try wrote.

    A try begins at ``began_at`` of its row in ``audit.snapshots``. A retried task writes its rows again: of rows with
    the same key, only the last row is returned.
    """
    return _last_by_key(table, _rows_of_last_try(catalog, table, run_id))


def read_release_rows(catalog: Catalog, table: str, release: Release) -> list[dict[str, Any]]:
    """Return rows of ``table`` that the try of ``release`` wrote. A run that was cleared has rows of several tries."""
    return _last_by_key(table, _rows_of_last_try(catalog, table, release.run_id, release.accepted_at))


def read_release_ledger(catalog: Catalog, release: Release) -> list[dict[str, Any]]:
    """Return rows of ``audit.ledger`` for the tables of ``release``.

    The rows are matched by Iceberg snapshot ID. A compaction appends a row with the ID of its own Iceberg snapshot.
    """
    ledger, snapshots = "audit.ledger", release.tables
    rows = _rows_by_time(catalog, ledger, release.run_id)
    return _last_by_key(
        ledger, (row for row in rows if row["snapshot_id"] == snapshots.get(f"bronze.{row['table_name']}"))
    )


def is_copy_complete(catalog: Catalog, run: Run) -> bool:
    """Return whether the copy of the run's last try is complete, that is, whether its ledger is written."""
    return catalog.table_exists("audit.ledger") and bool(_rows_of_last_try(catalog, "audit.ledger", run.run_id))


def read_run_checks(catalog: Catalog, run_id: str) -> list[dict[str, Any]]:
    """Return the run's rows of ``audit.checks`` that the last validation of each stage wrote."""
    rows = _rows_of_last_try(catalog, "audit.checks", run_id)
    last_validation = {row["stage"]: row["checked_at"] for row in rows}
    return [row for row in rows if row["checked_at"] == last_validation[row["stage"]]]


def read_latest_release(catalog: Catalog) -> Release | None:
    """Return the release that readers see; None before the first release. Only one data file is read."""
    table = catalog.load_table(RELEASES_TABLE)
    files = [(get_column_bounds(table, file, "release"), file) for file in table.scan().plan_files()]
    newest = max((numbers[1] for numbers, _ in files if numbers), default=None)
    candidates = [file for numbers, file in files if numbers is None or numbers[1] == newest]
    rows = read_planned_files(table, candidates).to_pylist()
    return Release.of_row(max(rows, key=lambda row: row["release"])) if rows else None


def iterate_newest_releases(catalog: Catalog) -> Iterator[Release]:
    """Yield all releases, the latest first. All others are read only if the caller continues after the latest."""
    if newest := read_latest_release(catalog):
        yield newest
        yield from (release for release in reversed(read_releases(catalog)) if release.number < newest.number)


def read_releases(catalog: Catalog) -> list[Release]:
    """Return all releases, the oldest first."""
    rows = catalog.load_table(RELEASES_TABLE).scan().to_arrow().to_pylist()
    return sorted(map(Release.of_row, rows), key=lambda release: release.number)


def _rows_of_last_try(catalog: Catalog, table: str, run_id: str, until: datetime | None = None) -> list[dict[str, Any]]:
    """Return the rows of the run's last try, the oldest first. Tries and rows written after ``until`` are ignored."""
    tries = _written_until(until, "audit.snapshots", _rows_by_time(catalog, "audit.snapshots", run_id))
    if table == "audit.snapshots":
        return tries[-1:]
    rows, written_at = _rows_by_time(catalog, table, run_id), load_audit_tables()[table].written_at
    return [row for row in _written_until(until, table, rows) if not tries or row[written_at] >= tries[-1]["began_at"]]


def _written_until(until: datetime | None, table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    written_at = load_audit_tables()[table].written_at
    return [row for row in rows if until is None or row[written_at] <= until]


def _rows_by_time(catalog: Catalog, table: str, run_id: str) -> list[dict[str, Any]]:
    declared = load_audit_tables()[table]
    scan = catalog.load_table(table).scan(row_filter=EqualTo(term="run_id", value=run_id))
    return sorted(scan.to_arrow().to_pylist(), key=lambda row: [row[name] or _EPOCH for name in declared.timestamps])


def _last_by_key(table: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    key = load_audit_tables()[table].key
    return list({tuple(row[column] for column in key): row for row in rows}.values())
