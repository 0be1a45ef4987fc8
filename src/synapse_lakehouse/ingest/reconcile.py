"""Compare the run's branch of bronze with the source, in the snapshot of the copy, and repair differences.

LAKEHOUSE_PARITY_SECONDS, the budget, limits the source's work per run. Slices of tables take turns: the slice that was
compared longest ago comes first.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.ingest.lake_digests import digest_hashes
from synapse_lakehouse.ingest.repair import Repair
from synapse_lakehouse.ingest.snapshot_session import wait_with_keepalive
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.key_ranges import key_range_spark_sql
from synapse_lakehouse.postgres.rows.range_digest import (
    RANGE_COUNT,
    DigestsByRange,
    KeySlice,
    RowDigest,
    build_digest_query,
    find_differing_ranges,
    row_hash_spark_sql,
    slice_key_ranges,
)
from synapse_lakehouse.postgres.rows.row_counts import estimate_rows
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp

ROWS_PER_SECOND = 50_000
"""Rows that even a slow source digests per second; a slice has as many rows as fit into half of the budget."""

_RETRY_FACTOR: Final = 1.25
"""A slice that was cut off is retried with at least this factor of its earlier time, or with the whole budget."""


@dataclass
class SliceComparison:
    """The comparison of one slice of a table.

    * ``seconds``: before the query, the least time that the source needs for the digest, as far as known; after the
      query, the time that the source needed.
    * ``last``: time of the previous comparison.
    * ``source``: digests from the source; None before the query, and where the query was cut off.
    * ``lake``: digests from the lake.
    """

    table: Table
    part: KeySlice
    seconds: float = 0.0
    last: datetime | None = None
    source: DigestsByRange | None = None
    lake: dict[str, RowDigest] = field(default_factory=dict)

    @property
    def differing(self) -> list[str]:
        """Names of the ranges in which source and lake differ."""
        return [] if self.source is None else find_differing_ranges(self.source, self.lake)


def reconcile_tables(app: SparkApp, catalogue: Catalogue, connection: Connection, snapshot: PostgresSnapshot) -> None:
    """Compare as many slices as LAKEHOUSE_PARITY_SECONDS (the budget) allows, and read differing ranges again.

    The results are appended to ``audit.reconciliation`` and, if ranges differ, to ``audit.repairs`` and
    ``audit.deletions``.
    """
    seconds = app.settings.lakehouse_parity_seconds
    units = digest_source(connection, list_slices_by_age(app, catalogue, connection), seconds)
    compared = [unit for unit in units if unit.source is not None]
    with ThreadPoolExecutor(1) as pool:
        with_spark_session = inheritable_thread_target(app.spark)
        wait_with_keepalive(pool.submit(with_spark_session(digest_lake), app.spark, compared), connection)
        repairs = [Repair(app, snapshot, unit.table, unit.part, unit.differing) for unit in units if unit.differing]
        for repair in repairs:
            wait_with_keepalive(pool.submit(with_spark_session(repair.replace_ranges)), connection)
    now = datetime.now(UTC)
    store.append_audit_rows(
        app.catalog, "audit.reconciliation", [_reconciliation_row(unit, now) for unit in units], app.run
    )
    if repairs:
        store.append_audit_rows(app.catalog, "audit.repairs", [repair.row() for repair in repairs], app.run)
    if deletions := [row for repair in repairs for row in repair.deletions()]:
        store.append_audit_rows(app.catalog, "audit.deletions", deletions, app.run)
    rows = sum(digest.rows for unit in compared for digest in (unit.source or {}).values())
    app.report_progress(
        f"{rows:,} rows in {len(compared)} of {len(units)} slices compared with the source in "
        f"{sum(unit.seconds for unit in units):.1f} s of at most {seconds} s; {len(repairs)} slices differed"
    )


def list_slices_by_age(app: SparkApp, catalogue: Catalogue, connection: Connection) -> list[SliceComparison]:
    """Return all slices of all copied tables: slices that were never compared first, then by age of the comparison.

    A slice that was cut off after at least half of the budget was too large: its table gets twice as many slices. If it
    was cut off after less time, because the budget was smaller then, the table is divided like a new table. New slices
    get the age of their table's last comparison; otherwise a slice that takes too long would come first every night.
    """
    rows = estimate_rows(connection, [table.name for table in catalogue.copied_tables()])
    half = app.settings.lakehouse_parity_seconds / 2
    history = app.catalog.load_table("audit.reconciliation").scan().to_arrow().sort_by("compared_at").to_pylist()
    last_of_table = {row["table_name"]: row for row in history}
    last_of_slice = {(row["table_name"], row["slice"], row["slices"]): row for row in history}
    units = []
    for table in catalogue.copied_tables():
        last, minimum = last_of_table.get(table.name), 1
        was_cut_off = last is not None and last["differing"] is None
        if last and not was_cut_off:
            minimum = last["slices"]
        elif last and last["seconds"] >= half:
            minimum = min(last["slices"] * 2, RANGE_COUNT)
        for part in slice_key_ranges(rows.get(table.name, 0), int(ROWS_PER_SECOND * half), minimum):
            previous = last_of_slice.get((table.name, part.number, part.of), last if was_cut_off else None)
            if last and last["slices"] != part.of:
                previous = last
            units.append(
                SliceComparison(
                    table, part, _minimum_seconds(previous or last), previous["compared_at"] if previous else None
                )
            )
    never = datetime.fromtimestamp(0, UTC)
    return sorted(units, key=lambda unit: (unit.last or never, rows.get(unit.table.name, 0)))


def _minimum_seconds(previous: Mapping[str, Any] | None) -> float:
    """Return the least seconds that a slice needs, from a row of ``audit.reconciliation`` for it or a similar one."""
    if previous is None:
        return 0.0
    seconds: float = previous["seconds"]
    return seconds * _RETRY_FACTOR if previous["differing"] is None else seconds


def digest_source(connection: Connection, units: Sequence[SliceComparison], seconds: float) -> list[SliceComparison]:
    """Digest ``units`` in the source for at most ``seconds``, and return those that were started.

    The last started slice may be cut off. A slice that needs longer than the remaining time is not started, unless it
    is the first. The next run starts with this slice.
    """
    row = connection.execute("select current_setting('statement_timeout')").fetchone()
    assert row is not None
    remaining_seconds, started_units = seconds, list[SliceComparison]()
    for unit in units:
        if remaining_seconds <= 0 or (started_units and unit.seconds > remaining_seconds):
            break
        started = time.monotonic()
        with suppress(psycopg.errors.QueryCanceled), connection.transaction():
            connection.execute(
                "select set_config('statement_timeout', %s, true)", [f"{max(1, int(remaining_seconds * 1000))}"]
            )
            rows = connection.execute(
                build_digest_query(unit.table, unit.part, connection.info.server_version)
            ).fetchall()
            unit.source = {name: RowDigest(*map(int, digest)) for name, *digest in rows}
        unit.seconds = time.monotonic() - started
        remaining_seconds -= unit.seconds
        started_units.append(unit)
    connection.execute("select set_config('statement_timeout', %s, true)", row)
    return started_units


def digest_lake(spark: SparkSession, units: Sequence[SliceComparison]) -> None:
    """Set the lake's digests of all ``units``."""
    digests = digest_hashes(_hash_rows(spark, number, unit) for number, unit in enumerate(units))
    for (number, name), digest in digests.items():
        units[number].lake[name] = digest


def _hash_rows(spark: SparkSession, number: int, unit: SliceComparison) -> DataFrame:
    rows = spark.table(f"bronze.{unit.table.name}").select(
        f.lit(number).alias("unit"),
        f.expr(key_range_spark_sql(unit.table)).alias("range"),
        f.expr(row_hash_spark_sql(unit.table)).alias("hash"),
    )
    return rows.where(f.col("range").between(unit.part.first, unit.part.last)) if unit.part.of > 1 else rows


def _reconciliation_row(unit: SliceComparison, now: datetime) -> dict[str, Any]:
    """Return the row of ``audit.reconciliation``."""
    digests = unit.source or {}
    return {
        "table_name": unit.table.name,
        "slice": unit.part.number,
        "slices": unit.part.of,
        "ranges": len(digests),
        "rows": sum(digest.rows for digest in digests.values()),
        "differing": None if unit.source is None else len(unit.differing),
        "seconds": unit.seconds,
        "compared_at": now,
    }
