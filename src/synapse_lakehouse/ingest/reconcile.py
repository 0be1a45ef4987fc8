"""Compare the run's branch of bronze with the source, inside the snapshot that it was copied from, and mend it.

The source's share of the work is bounded by LAKEHOUSE_PARITY_SECONDS a run. What is not compared in one run comes first
in the next: slices of tables take turns, the one compared longest ago first.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

import psycopg
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.ingest.repair import Repair
from synapse_lakehouse.ingest.snapshot_session import wait_with_keepalive
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.key_ranges import key_range_spark_sql
from synapse_lakehouse.postgres.rows.range_digest import (
    RANGE_COUNT,
    DigestsByRange,
    KeySlice,
    RangeDigest,
    build_digest_query,
    find_differing_ranges,
    hash_sum_spark_sql,
    row_hash_spark_sql,
    slice_key_ranges,
)
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp

ROWS_PER_SECOND = 50_000
"""Rows that any source digests in a second; slices are cut so that one fits into half of the budget."""

_MORE: Final = 1.25
"""What was cut off is begun again where there is so many times what it had, or all of the budget."""


@dataclass
class SliceComparison:
    """A slice of a table: seconds that digesting it needs of the source, as far as known, and when it was asked for.

    ``source`` is None until the source was asked for, and where it was cut off.
    """

    table: Table
    part: KeySlice
    seconds: float = 0.0
    last: datetime | None = None
    source: DigestsByRange | None = None
    lake: dict[str, RangeDigest] = field(default_factory=dict)

    @property
    def differing(self) -> list[str]:
        """Ranges in which source and lake differ."""
        return [] if self.source is None else find_differing_ranges(self.source, self.lake)


def reconcile_tables(app: SparkApp, catalogue: Catalogue, connection: Connection, snapshot: PostgresSnapshot) -> None:
    """Compare what the budget allows, read differing ranges again, and write what was found.

    Writes ``audit.parity`` and, where something differed, ``audit.repairs`` and ``audit.deletions``.
    """
    seconds = app.settings.lakehouse_parity_seconds
    units = digest_source(connection, list_slices_by_age(app, catalogue, connection), seconds)
    verified = [unit for unit in units if unit.source is not None]
    with ThreadPoolExecutor(1) as pool:
        here = inheritable_thread_target(app.spark)
        wait_with_keepalive(pool.submit(here(digest_lake), app.spark, verified), connection)
        repairs = [Repair(app, snapshot, unit.table, unit.part, unit.differing) for unit in units if unit.differing]
        for repair in repairs:
            wait_with_keepalive(pool.submit(here(repair.do)), connection)
    now = datetime.now(UTC)
    store.append_audit_rows(app.catalog, "audit.parity", [_parity_row(unit, now) for unit in units], app.run)
    if repairs:
        store.append_audit_rows(app.catalog, "audit.repairs", [repair.row() for repair in repairs], app.run)
    if gone := [row for repair in repairs for row in repair.deletions()]:
        store.append_audit_rows(app.catalog, "audit.deletions", gone, app.run)
    rows = sum(one.rows for unit in verified for one in (unit.source or {}).values())
    app.report_progress(
        f"{rows:,} rows in {len(verified)} of {len(units)} slices compared with the source, which spent "
        f"{sum(unit.seconds for unit in units):.1f} s of {seconds} s on it; {len(repairs)} differed"
    )


def list_slices_by_age(app: SparkApp, catalogue: Catalogue, connection: Connection) -> list[SliceComparison]:
    """All slices of all copied tables, the one asked for longest ago first, and those never asked for before all.

    A slice that was cut off although it had half of the budget was too large: its table is cut into twice as many.
    Where it had less, with a smaller budget, the table is cut as if it had never been. Slices that are cut anew count
    as asked for when their table was, or one that takes too long to scan would come first night after night.
    """
    rows: Mapping[str, int] = dict(
        connection.execute(
            "select name, greatest(reltuples, 0)::bigint from unnest(%s::text[]) name"
            " join pg_class on pg_class.oid = to_regclass(name)",
            [[table.name for table in catalogue.copied_tables()]],
        ).fetchall()
    )
    half = app.settings.lakehouse_parity_seconds / 2
    past = app.catalog.load_table("audit.parity").scan().to_arrow().sort_by("compared_at").to_pylist()
    latest = {row["table_name"]: row for row in past}
    before = {(row["table_name"], row["slice"], row["slices"]): row for row in past}
    units = []
    for table in catalogue.copied_tables():
        last, at_least = latest.get(table.name), 1
        was_cut_off = last is not None and last["differing"] is None
        if last and not was_cut_off:
            at_least = last["slices"]
        elif last and last["seconds"] >= half:
            at_least = min(last["slices"] * 2, RANGE_COUNT)
        for part in slice_key_ranges(rows.get(table.name, 0), int(ROWS_PER_SECOND * half), at_least):
            known = before.get((table.name, part.number, part.of), last if was_cut_off else None)
            if last and last["slices"] != part.of:
                known = last
            units.append(SliceComparison(table, part, _needed(known or last), known["compared_at"] if known else None))
    never = datetime.fromtimestamp(0, UTC)
    return sorted(units, key=lambda unit: (unit.last or never, rows.get(unit.table.name, 0)))


def _needed(before: Mapping[str, Any] | None) -> float:
    """Seconds that a slice needs at least, by a row of ``audit.parity`` on it or one alike."""
    if before is None:
        return 0.0
    seconds: float = before["seconds"]
    return seconds * _MORE if before["differing"] is None else seconds


def digest_source(connection: Connection, units: Sequence[SliceComparison], seconds: float) -> list[SliceComparison]:
    """The units that the source was asked for, until it had spent ``seconds``; the last one may have been cut off.

    One that took longer before than what is left is not begun: its turn comes first in the next run.
    """
    row = connection.execute("select current_setting('statement_timeout')").fetchone()
    assert row is not None
    left, done = seconds, list[SliceComparison]()
    for unit in units:
        if left <= 0 or (done and unit.seconds > left):
            break
        started = time.monotonic()
        with suppress(psycopg.errors.QueryCanceled), connection.transaction():
            connection.execute("select set_config('statement_timeout', %s, true)", [f"{max(1, int(left * 1000))}"])
            rows = connection.execute(
                build_digest_query(unit.table, unit.part, connection.info.server_version)
            ).fetchall()
            unit.source = {name: RangeDigest(*map(int, digest)) for name, *digest in rows}
        unit.seconds = time.monotonic() - started
        left -= unit.seconds
        done.append(unit)
    connection.execute("select set_config('statement_timeout', %s, true)", row)
    return done


def digest_lake(spark: SparkSession, units: Sequence[SliceComparison]) -> None:
    """Fill in what the session's tables come to. One query for all, as most are small."""
    if not units:
        return
    sums = (f.expr(hash_sum_spark_sql(number)) for number in (0, 1))
    hashed = reduce(DataFrame.unionAll, (_hashed(spark, number, unit) for number, unit in enumerate(units)))
    digested = hashed.groupBy("unit", "range").agg(f.count(f.lit(1)), *sums)
    for number, name, *digest in digested.collect():
        units[number].lake[name] = RangeDigest(*map(int, digest))


def _hashed(spark: SparkSession, number: int, unit: SliceComparison) -> DataFrame:
    rows = spark.table(f"bronze.{unit.table.name}").select(
        f.lit(number).alias("unit"),
        f.expr(key_range_spark_sql(unit.table)).alias("range"),
        f.expr(row_hash_spark_sql(unit.table)).alias("hash"),
    )
    return rows.where(f.col("range").between(unit.part.first, unit.part.last)) if unit.part.of > 1 else rows


def _parity_row(unit: SliceComparison, now: datetime) -> dict[str, Any]:
    """A row of ``audit.parity``."""
    digests = unit.source or {}
    return {
        "table_name": unit.table.name,
        "slice": unit.part.number,
        "slices": unit.part.of,
        "ranges": len(digests),
        "rows": sum(one.rows for one in digests.values()),
        "differing": None if unit.source is None else len(unit.differing),
        "seconds": unit.seconds,
        "compared_at": now,
    }
