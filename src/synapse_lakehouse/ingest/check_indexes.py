"""Compare index entries of the source with the copy, in the snapshot of the copy.

The copy was read from the heap, so it has the rows that each index must return. LAKEHOUSE_INDEX_CHECK_SECONDS limits
the source's work per run.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.ingest.index_progress import FEWEST_ENTRIES, IndexProgress, list_indexes_by_age
from synapse_lakehouse.ingest.lake_digests import digest_hashes
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession, wait_with_keepalive
from synapse_lakehouse.postgres.indexes.index_faults import IndexFault, IndexFaultKind, Row, find_index_faults
from synapse_lakehouse.postgres.indexes.key_range import KeyRange, build_spark_condition, to_spark_predicate
from synapse_lakehouse.postgres.indexes.range_scan import IndexScan, OtherPlanError, ScannedRange
from synapse_lakehouse.postgres.rows.range_digest import EMPTY_DIGEST, RowDigest, row_hash_spark_sql
from synapse_lakehouse.spark_app import SparkApp

FAULTS_TABLE: Final = "silver.index_faults"

_SCAN_SHARE: Final = 0.75
"""Share of the time for the scans. The rest is for a second scan of the ranges that differ."""
_MAX_EXAMINED: Final = 200_000
"""Maximum number of entries of an index that one run compares one by one."""
_MAX_FAULTS: Final = 10_000
"""Maximum number of recorded faults of an index in one run. ``audit.index_checks`` counts all of them."""

_READ_ERROR: Final = "a read error stops the comparison; REINDEX rebuilds the index, unless the error is in the table"
_TOO_SLOW: Final = "a range of its keys takes longer than LAKEHOUSE_INDEX_CHECK_SECONDS"


def check_indexes(session: SnapshotSession) -> None:
    """Compare as many index entries as the budget allows.

    Appends to ``audit.index_checks``, and replaces ``silver.index_faults`` on the run's branch.
    """
    app, connection = session.app, session.connection
    seconds = app.settings.lakehouse_index_check_seconds
    indexes, uncovered = list_indexes_by_age(session) if seconds else ([], [])
    started = time.monotonic()
    scanned = scan_source(indexes, seconds * _SCAN_SHARE)
    remaining = seconds - (time.monotonic() - started)
    with ThreadPoolExecutor(1) as pool:
        with_spark_session = inheritable_thread_target(app.spark)
        lake = wait_with_keepalive(pool.submit(with_spark_session(digest_lake), app.spark, scanned), connection)
        faults, must_read = list[dict[str, Any]](), True
        for number, unit in enumerate(scanned):
            differing = [part for place, part in enumerate(unit.ranges) if _differs(part, lake.get((number, place)))]
            examined = _select_examined(differing)
            rows = wait_with_keepalive(
                pool.submit(with_spark_session(_read_lake), app.spark, unit, examined), connection
            )
            _advance(unit, differing[len(examined) :])
            began = time.monotonic()
            faults += _explain(unit, examined, rows, remaining, must_read=must_read)
            remaining -= time.monotonic() - began
            must_read &= all(part.error for part in examined)
        now = datetime.now(UTC)
        wait_with_keepalive(pool.submit(with_spark_session(_store_faults), app, indexes, faults), connection)
    store.append_audit_rows(
        app.catalog, "audit.index_checks", [*(unit.row(now) for unit in indexes), *uncovered], app.run
    )
    app.report_progress(_describe(indexes, seconds))


def scan_source(indexes: Sequence[IndexProgress], seconds: float) -> list[IndexProgress]:
    """Read ranges of the ``indexes`` for at most ``seconds``, and return the indexes of which ranges were read."""
    scanned, enough = list[IndexProgress](), seconds / 2
    for unit in indexes:
        if seconds <= 0:
            break
        started, unit.not_checked = time.monotonic(), ""
        try:
            unit.scan = IndexScan(unit.connection, unit.index, unit.columns)
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


def digest_lake(spark: SparkSession, scanned: Sequence[IndexProgress]) -> dict[tuple[int, int], RowDigest]:
    """Return the digests of the same ranges of the copy, by number of the index and of the range."""
    return digest_hashes(_hash_rows(spark, number, unit) for number, unit in enumerate(scanned))


def _hash_rows(spark: SparkSession, number: int, unit: IndexProgress) -> DataFrame:
    names = (*unit.index.columns, *unit.columns)
    hashed = unit.table.model_copy(update={"columns": tuple(map(unit.table.column, names))})
    places = [
        f"when {build_spark_condition(unit.index, KeyRange(None, part.keys.end))} then {place}"
        for place, part in enumerate(unit.ranges)
    ]
    return _select_rows(spark, unit, [part.keys for part in unit.ranges]).select(
        f.lit(number).alias("unit"),
        f.expr(f"case {' '.join(places)} end").alias("range"),
        f.expr(row_hash_spark_sql(hashed)).alias("hash"),
    )


def _select_rows(spark: SparkSession, unit: IndexProgress, ranges: Sequence[KeyRange]) -> DataFrame:
    """The copied rows that the index must contain in ``ranges``."""
    condition = " or ".join(f"({build_spark_condition(unit.index, part)})" for part in _join_neighbours(ranges))
    return spark.table(f"bronze.{unit.table.name}").where(f"({to_spark_predicate(unit.index)}) and ({condition})")


def _join_neighbours(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    joined: list[KeyRange] = []
    for part in ranges:
        if joined and joined[-1].end is not None and joined[-1].end == part.first:
            joined[-1] = KeyRange(joined[-1].first, part.end)
        else:
            joined.append(part)
    return joined


def _differs(part: ScannedRange, lake: RowDigest | None) -> bool:
    return bool(part.error) or part.digest != (lake or EMPTY_DIGEST)


def _read_lake(spark: SparkSession, unit: IndexProgress, differing: Sequence[ScannedRange]) -> list[Row]:
    ranges = [part.keys for part in differing if not part.error]
    if not ranges:
        return []
    names = [f"`{name}`" for name in (*unit.index.columns, *unit.columns)]
    return [tuple(row) for row in _select_rows(spark, unit, ranges).select(*names).collect()]


def _select_examined(differing: Sequence[ScannedRange]) -> list[ScannedRange]:
    """Return the first of the ranges that have a limited number of entries together, and at least one range."""
    entries = accumulate(part.digest.rows for part in differing)
    return [
        part
        for place, (part, total) in enumerate(zip(differing, entries, strict=True))
        if not place or total <= _MAX_EXAMINED
    ]


def _explain(
    unit: IndexProgress, examined: Sequence[ScannedRange], rows: Sequence[Row], seconds: float, *, must_read: bool
) -> list[dict[str, Any]]:
    """Return the faults of the ``examined`` ranges as rows of ``silver.index_faults``.

    If the time is too short, the next run continues at the first range that was not examined.

    :param must_read: whether one range is read without a limit, so that each run proceeds.
    """
    assert unit.scan
    until, found = time.monotonic() + seconds, list[dict[str, Any]]()
    for part in examined:
        if part.error:
            faults = [IndexFault(IndexFaultKind.UNREADABLE, (part.error,))]
        else:
            entries, must_read = unit.scan.read_range(part.keys, None if must_read else until), False
            if entries is None:
                _advance(unit, [part])
                break
            keys = len(unit.index.columns)
            faults = find_index_faults(entries, [row for row in rows if row[:keys] in part.keys])
        unit.faults += len(faults)
        found += [_fault_row(unit, part.keys, fault) for fault in faults]
    return found[:_MAX_FAULTS]


def _advance(unit: IndexProgress, remaining: Sequence[ScannedRange]) -> None:
    """Set where the next run continues: at the first ``remaining`` range, at a read error, or after the last range."""
    remaining = remaining or [part for part in unit.ranges if part.error]
    unit.next = remaining[0].keys.first if remaining else unit.ranges[-1].keys.end
    unit.is_finished = not remaining and unit.next is None


def _fault_row(unit: IndexProgress, keys: KeyRange, fault: IndexFault) -> dict[str, Any]:
    names = (*unit.index.columns, *unit.columns)
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


def _store_faults(app: SparkApp, indexes: Sequence[IndexProgress], faults: Sequence[dict[str, Any]]) -> None:
    """Replace the recorded faults: new ones, and earlier ones of which the rows were not compared again yet."""
    table = app.catalog.load_table(FAULTS_TABLE)
    present = {(unit.index.name, unit.index.filenode): unit.number + unit.is_finished for unit in indexes}
    earlier = [
        row
        for row in table.scan().to_arrow().to_pylist()
        if row["pass"] >= present.get((row["index_name"], row["filenode"]), row["pass"] + 2) - 1
    ]
    rows = {(row["index_name"], row["kind"], row["key"]): row for row in (*earlier, *faults)}
    content = [rows[key] for key in sorted(rows)]
    fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    schema = app.spark.table(FAULTS_TABLE).schema
    frame = app.spark.createDataFrame([tuple(row[name] for name in schema.names) for row in content], schema)
    input_fingerprint.replace_table(app.spark, FAULTS_TABLE, app.run.branch, frame, fingerprint)


def _describe(indexes: Sequence[IndexProgress], seconds: int) -> str:
    checked = sum(part.digest.rows for unit in indexes for part in unit.ranges)
    spent, total = sum(unit.seconds for unit in indexes), sum(unit.index.entries for unit in indexes)
    runs = total * spent / max(checked, 1) / max(seconds * _SCAN_SHARE, 1)
    return (
        f"{checked:,} entries of {sum(bool(unit.ranges) for unit in indexes)} indexes compared with the copy in "
        f"{spent:.1f} s of at most {seconds} s; {sum(unit.faults for unit in indexes):,} faults; at this pace, all "
        f"{total:,} entries are compared in {max(1, round(runs + 0.5))} runs"
    )
