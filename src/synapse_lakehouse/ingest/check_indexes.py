"""Compare index entries of the source with the copy, in the snapshot of the copy.

The copy was read from the heap, so it has the rows that each index must return. LAKEHOUSE_INDEX_CHECK_SECONDS limits
the source's work per run.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from pyspark import inheritable_thread_target

from synapse_lakehouse.audit import store
from synapse_lakehouse.ingest.index_fault_rows import store_faults
from synapse_lakehouse.ingest.index_progress import FEWEST_ENTRIES, IndexProgress, list_indexes_by_age
from synapse_lakehouse.ingest.index_rows import MAX_EXAMINED, ExaminedRanges, digest_lake, read_examined, read_groups
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession, wait_with_keepalive
from synapse_lakehouse.postgres.indexes.index_faults import IndexFault, IndexFaultKind, find_index_faults
from synapse_lakehouse.postgres.indexes.key_range import KeyRange
from synapse_lakehouse.postgres.indexes.range_scan import IndexScan, OtherPlanError, ScannedRange
from synapse_lakehouse.postgres.rows.range_digest import EMPTY_DIGEST, RowDigest

_SCAN_SHARE: Final = 0.75
"""Share of the time for the scans. The rest is for a second scan of the ranges that differ."""

_READ_ERROR: Final = "a read error stops the comparison; REINDEX rebuilds the index, unless the error is in the table"
_TOO_MANY: Final = f"in one range of keys, more than {MAX_EXAMINED:,} rows and entries differ; REINDEX rebuilds it"
_TOO_SLOW: Final = "a range of its keys takes longer than LAKEHOUSE_INDEX_CHECK_SECONDS"


def check_indexes(session: SnapshotSession) -> None:
    """Compare as many index entries as LAKEHOUSE_INDEX_CHECK_SECONDS allows.

    The results are appended to ``audit.index_checks``, and replace ``silver.index_faults`` on the run's branch.
    """
    app, connection = session.app, session.connection
    seconds = app.settings.lakehouse_index_check_seconds
    indexes, uncovered = list_indexes_by_age(session)
    started = time.monotonic()
    scanned = scan_source(indexes, seconds * _SCAN_SHARE)
    remaining = seconds - (time.monotonic() - started)
    with ThreadPoolExecutor(1) as pool:

        def run_on_spark(work: Callable[..., Any], *arguments: object) -> Any:
            task = pool.submit(inheritable_thread_target(app.spark)(work), app.spark, *arguments)
            return wait_with_keepalive(task, connection)

        lake = run_on_spark(digest_lake, scanned)
        faults, read_first_without_limit = list[dict[str, Any]](), True
        for number, unit in enumerate(scanned):
            differing = _find_differing(unit, [lake.get((number, place)) for place in range(len(unit.ranges))])
            if len(faults) >= MAX_EXAMINED:
                _advance(unit, [part for part, _ in differing])
                continue
            examined = run_on_spark(read_examined, unit, differing)
            _advance(unit, examined.remaining)
            began = time.monotonic()
            until = None if read_first_without_limit else began + remaining
            if examined.is_indivisible:
                _read_groups(unit, examined, until, run_on_spark)
            faults += _explain(unit, examined, began + remaining, read_first_without_limit=read_first_without_limit)
            remaining -= time.monotonic() - began
            read_first_without_limit &= all(part.error for part in examined.ranges)
        now = datetime.now(UTC)
        checks = [*(unit.row(now) for unit in indexes), *uncovered]
        drifted = [name for part in session.exported for name in part.snapshot.drifted_tables]
        run_on_spark(store_faults, app, checks, drifted, faults)
    if seconds:
        store.append_audit_rows(app.catalog, "audit.index_checks", checks, app.run)
        app.report_progress(_describe(indexes, seconds))


def scan_source(indexes: Sequence[IndexProgress], seconds: float) -> list[IndexProgress]:
    """Read ranges of the ``indexes`` for at most ``seconds``, and return the indexes with at least one read range."""
    scanned, enough = list[IndexProgress](), seconds / 2
    for unit in indexes:
        if seconds <= 0:
            break
        started, unit.not_checked = time.monotonic(), ""
        try:
            unit.scan = IndexScan(unit.connection, unit.index, unit.identifying_columns)
            for part in unit.scan.iterate_ranges(unit.first, seconds, unit.count):
                unit.ranges.append(part)
        except OtherPlanError as error:
            unit.not_checked = str(error)
        unit.seconds = time.monotonic() - started
        seconds -= unit.seconds
        if unit.ranges:
            scanned.append(unit)
            if unit.ranges[-1].error:
                unit.not_checked = _READ_ERROR
        elif not unit.not_checked and unit.count <= FEWEST_ENTRIES and unit.seconds > enough:
            unit.not_checked = _TOO_SLOW
    return scanned


def _find_differing(unit: IndexProgress, lake: Sequence[RowDigest | None]) -> list[tuple[ScannedRange, int]]:
    """Return the ranges that differ from the copy, each with the larger number: its entries or its copied rows."""
    both = [(part, copied or EMPTY_DIGEST) for part, copied in zip(unit.ranges, lake, strict=True)]
    return [
        (part, 0 if part.error else max(part.digest.rows, copied.rows))
        for part, copied in both
        if part.error or part.digest != copied
    ]


def _read_groups(
    unit: IndexProgress, examined: ExaminedRanges, until: float | None, run_on_spark: Callable[..., Any]
) -> None:
    """Read the copied rows of the hash groups that differ. If these are too many rows, the pass stops at this range."""
    (part,) = examined.ranges
    assert unit.scan
    entries = unit.scan.digest_groups(part.keys, until)
    if entries is None:
        examined.ranges = []
        _advance(unit, [part])
    elif not run_on_spark(read_groups, unit, examined, entries):
        unit.not_checked = _TOO_MANY
        _advance(unit, [part])


def _explain(
    unit: IndexProgress, examined: ExaminedRanges, until: float, *, read_first_without_limit: bool
) -> list[dict[str, Any]]:
    """Return the faults of the ``examined`` ranges as rows of ``silver.index_faults``.

    If the time is too short, the next run continues at the first range that was not examined.

    :param read_first_without_limit: whether the first range has no time limit, so that each run makes progress.
    """
    assert unit.scan
    found = list[dict[str, Any]]()
    for part in examined.ranges:
        if part.error:
            faults = [IndexFault(IndexFaultKind.UNREADABLE, (part.error,))]
        else:
            limit, read_first_without_limit = None if read_first_without_limit else until, False
            entries = unit.scan.read_range(part.keys, limit, examined.groups)
            if entries is None:
                _advance(unit, [part])
                break
            keys = len(unit.index.columns)
            faults = find_index_faults(entries, [row for row in examined.rows if row[:keys] in part.keys])
        unit.faults += len(faults)
        found += [_fault_row(unit, part.keys, fault) for fault in faults]
    return found


def _advance(unit: IndexProgress, remaining: Sequence[ScannedRange]) -> None:
    """Set where the next run continues: at the first ``remaining`` range, at a read error, or after the last range."""
    remaining = remaining or [part for part in unit.ranges if part.error]
    unit.next = remaining[0].keys.first if remaining else unit.ranges[-1].keys.end
    unit.is_finished = not remaining and unit.next is None


def _fault_row(unit: IndexProgress, keys: KeyRange, fault: IndexFault) -> dict[str, Any]:
    names = (*unit.index.columns, *unit.identifying_columns)
    values = dict(zip(names, fault.row, strict=False)) if fault.kind is not IndexFaultKind.UNREADABLE else {}
    return {
        "table_name": unit.table.name,
        "index_name": unit.index.name,
        "kind": str(fault.kind),
        "room_id": values.get("room_id"),
        "key": json.dumps(values, ensure_ascii=False) if values else str(fault.row[0]),
        "searched": json.dumps([keys.first, keys.end], ensure_ascii=False),
        "filenode": unit.index.filenode,
        "pass": unit.number,
    }


def _describe(indexes: Sequence[IndexProgress], seconds: int) -> str:
    checked = sum(part.digest.rows for unit in indexes for part in unit.ranges)
    spent, total = sum(unit.seconds for unit in indexes), sum(unit.index.entries for unit in indexes)
    runs = total * spent / max(checked, 1) / max(seconds * _SCAN_SHARE, 1)
    return (
        f"{checked:,} entries of {sum(bool(unit.ranges) for unit in indexes)} indexes compared with the copy in "
        f"{spent:.1f} s of at most {seconds} s; {sum(unit.faults for unit in indexes):,} faults; at this pace, all "
        f"{total:,} entries are compared in {max(1, round(runs + 0.5))} runs"
    )
