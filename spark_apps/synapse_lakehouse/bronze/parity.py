"""Compare the run's branch of bronze with the source, inside the snapshot that it was copied from, and mend it.

The source's share of the work is bounded by LAKEHOUSE_PARITY_SECONDS a run. What is not compared in one run comes first
in the next: slices of tables take turns, the one compared longest ago first.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.app import SparkApp
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.lake import audit
from synapse_lakehouse.lake.amending import amend
from synapse_lakehouse.lake.files import parquet_schema
from synapse_lakehouse.source.connection import Connection, conninfo
from synapse_lakehouse.source.content import combined
from synapse_lakehouse.source.parity import (
    Digest,
    Digests,
    Slice,
    differing,
    hash_in_lake,
    in_source,
    range_in_lake,
    rows_of,
    slices,
    sum_in_lake,
)
from synapse_lakehouse.source.read import Chunk, Written, copy_chunk
from synapse_lakehouse.source.snapshot import Snapshot

ROWS_A_SECOND = 50_000
"""Rows that any source digests in a second; slices are cut so that one fits into half of the budget."""


@dataclass
class Unit:
    """A slice of a table, its digests by the source, and what that cost there; None if it was cut off."""

    table: Table
    part: Slice
    seconds: float = 0.0
    source: Digests | None = None
    lake: Digests = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        """What it is known by from run to run."""
        return self.table.name, self.part.number, self.part.of

    @property
    def differing(self) -> list[str]:
        """Ranges in which source and lake differ."""
        return [] if self.source is None else differing(self.source, self.lake)


def verify_tables(app: SparkApp, catalogue: Catalogue, connection: Connection, snapshot: Snapshot) -> None:
    """Compare what the budget allows, read differing ranges again, and write what was found.

    Writes ``audit.parity`` and, where something differed, ``audit.repairs`` and ``audit.deletions``.
    """
    seconds = app.settings.lakehouse_parity_seconds
    units = asked(connection, in_turn(app, catalogue, connection), seconds)
    lake = digests_in_lake(app.spark, [unit.table for unit in units if unit.source is not None])
    for unit in units:
        unit.lake = {name: one for name, one in lake.get(unit.table.name, {}).items() if name in unit.part}
    repairs = [Repair(app, snapshot, unit) for unit in units if unit.differing]
    for repair in repairs:
        repair.do()
    now = datetime.now(UTC)
    audit.append(app.catalog, "audit.parity", [_parity_row(unit, now) for unit in units], app.run)
    if repairs:
        audit.append(app.catalog, "audit.repairs", [repair.row() for repair in repairs], app.run)
    if gone := [row for repair in repairs for row in repair.deletions()]:
        audit.append(app.catalog, "audit.deletions", gone, app.run)
    verified = [unit for unit in units if unit.source is not None]
    rows = sum(one.rows for unit in verified for one in (unit.source or {}).values())
    app.progress(
        f"{rows:,} rows in {len(verified)} of {len(units)} slices compared with the source, which spent "
        f"{sum(unit.seconds for unit in units):.1f} s of {seconds} s on it; {len(repairs)} differed"
    )


def in_turn(app: SparkApp, catalogue: Catalogue, connection: Connection) -> list[Unit]:
    """All slices of all copied tables, the one compared longest ago first; never compared ones are the first."""
    rows: Mapping[str, int] = dict(
        connection.execute(
            "select name, greatest(reltuples, 0)::bigint from unnest(%s::text[]) name"
            " join pg_class on pg_class.oid = to_regclass(name)",
            [[table.name for table in catalogue.copied()]],
        ).fetchall()
    )
    most_rows = ROWS_A_SECOND * app.settings.lakehouse_parity_seconds // 2
    units = [Unit(table, part) for table in catalogue.copied() for part in slices(rows.get(table.name, 0), most_rows)]
    past = app.catalog.load_table("audit.parity").scan().to_arrow().to_pylist()
    last = {(row["table_name"], row["slice"], row["slices"]): row["verified_at"] for row in past if row["verified_at"]}
    never = datetime.fromtimestamp(0, UTC)
    return sorted(units, key=lambda unit: (last.get(unit.key, never), rows.get(unit.table.name, 0)))


def asked(connection: Connection, units: Sequence[Unit], seconds: float) -> list[Unit]:
    """The units that the source was asked for, until it had spent ``seconds``; the last one may have been cut off."""
    spent, done = 0.0, []
    row = connection.execute("select current_setting('statement_timeout')").fetchone()
    assert row is not None
    for unit in units:
        left = seconds - spent
        if left <= 0:
            break
        started = time.monotonic()
        try:
            with connection.transaction():
                connection.execute("select set_config('statement_timeout', %s, true)", [f"{max(1, int(left * 1000))}"])
                rows = connection.execute(in_source(unit.table, unit.part)).fetchall()
            unit.source = {name: Digest(*map(int, digest)) for name, *digest in rows}
        except psycopg.errors.QueryCanceled:
            pass
        unit.seconds = time.monotonic() - started
        spent += unit.seconds
        done.append(unit)
    connection.execute("select set_config('statement_timeout', %s, true)", row)
    return done


def digests_in_lake(spark: SparkSession, tables: Iterable[Table]) -> dict[str, dict[str, Digest]]:
    """Digests of each table as the session reads it: by table, by range. One query for all, as most are small."""
    found: dict[str, dict[str, Digest]] = {}
    if hashed := [_hashed(spark, table) for table in {table.name: table for table in tables}.values()]:
        sums = (f.expr(sum_in_lake(number)) for number in (0, 1))
        digested = reduce(DataFrame.unionAll, hashed).groupBy("table_name", "range").agg(f.count(f.lit(1)), *sums)
        for name, one, *digest in digested.collect():
            found.setdefault(name, {})[one] = Digest(*map(int, digest))
    return found


def _hashed(spark: SparkSession, table: Table) -> DataFrame:
    return spark.table(f"bronze.{table.name}").select(
        f.lit(table.name).alias("table_name"),
        f.expr(range_in_lake(table)).alias("range"),
        f.expr(hash_in_lake(table)).alias("hash"),
    )


class Repair:
    """Ranges of a table in which the lake differs: read again from the snapshot, replaced on the run's branch."""

    def __init__(self, app: SparkApp, snapshot: Snapshot, unit: Unit) -> None:
        self.app, self.snapshot, self.table, self.part, self.ranges = (
            app,
            snapshot,
            unit.table,
            unit.part,
            unit.differing,
        )
        self.name = f"bronze.{self.table.name}"
        self.seconds = 0.0
        self.counts = dict.fromkeys(("rows_lake", "rows_source", "rows_added", "rows_changed"), 0)
        self.removed: list[dict[str, Any]] = []

    def do(self) -> None:
        """Replace what differs, and correct the ledger's row of the table."""
        app, spark = self.app, self.app.spark
        lake = app.catalog.load_table(self.name)
        chunk = Chunk(
            conninfo=conninfo(app.settings),
            snapshot=self.snapshot.name,
            statement=rows_of(self.table, self.ranges).as_string(),
            schema=parquet_schema(lake, [column.name for column in self.table.columns]),
            unique_columns=(*self.table.primary_key, "json"),
            folder=f"{lake.location()}/data",
            io_properties=dict(app.catalog.properties) | app.settings.lakehouse_catalog_properties,
        )
        started = time.monotonic()
        (written,) = spark.sparkContext.parallelize([chunk], 1).map(copy_chunk).collect()
        self.seconds = time.monotonic() - started
        outdated = f"{range_in_lake(self.table)} in ({', '.join(repr(one) for one in self.ranges)})"
        paths = [written.path] if written.path else []
        self._compare(spark.table(self.name).where(outdated), spark.read.parquet(*paths) if paths else None)
        snapshot_id = amend(spark, self.name, app.run.branch, outdated, paths, app.run.run_id)
        self._correct_ledger(snapshot_id, written)
        app.progress(
            f"{self.name} differed from the source in {len(self.ranges)} ranges of keys and was mended: "
            f"{self.counts['rows_added']} rows were missing, {self.counts['rows_changed']} outdated, "
            f"{len(self.removed)} too many"
        )

    def row(self) -> dict[str, Any]:
        """A row of ``audit.repairs``."""
        return self.counts | {
            "table_name": self.table.name,
            "slice": self.part.number,
            "ranges": list(self.ranges),
            "rows_removed": len(self.removed),
            "seconds": self.seconds,
            "repaired_at": datetime.now(UTC),
        }

    def deletions(self) -> Iterator[dict[str, Any]]:
        """Rows of ``audit.deletions``: keys that the lake had and the source has not."""
        now = datetime.now(UTC)
        for key in self.removed:
            yield {
                "table_name": self.table.name,
                "key": json.dumps(key),
                "reason": "found by comparing with the source",
                "deleted_at": now,
            }

    def _compare(self, was: DataFrame, now: DataFrame | None) -> None:
        key = [f.col(name) for name in self.table.primary_key]
        hashed = f.expr(hash_in_lake(self.table)).alias("hash")
        old, new = was.select(*key, hashed), (was.limit(0) if now is None else now).select(*key, hashed)
        same_key = reduce(and_, (old[name].eqNullSafe(new[name]) for name in self.table.primary_key))
        self.removed = [row.asDict() for row in old.join(new, same_key, "left_anti").drop("hash").collect()]
        self.counts = {
            "rows_lake": old.count(),
            "rows_source": new.count(),
            "rows_added": new.join(old, same_key, "left_anti").count(),
            "rows_changed": new.join(old, same_key).where(old["hash"] != new["hash"]).count(),
        }

    def _correct_ledger(self, snapshot_id: int, again: Written) -> None:
        hashes = {"hash_read": again.hash_received, "hash_written": again.hash_stored}
        for row in audit.of_run(self.app.catalog, "audit.ledger", self.app.run.run_id):
            if row["table_name"] == self.table.name:
                more = {name: row[name] + again.rows for name in ("rows_read", "rows_written")}
                hashed = {name: f"{combined([int(row[name], 16), one]):016x}" for name, one in hashes.items()}
                now = {"branch": self.app.run.branch, "snapshot_id": snapshot_id, "written_at": datetime.now(UTC)}
                audit.append(self.app.catalog, "audit.ledger", [row | more | hashed | now], self.app.run)


def _parity_row(unit: Unit, now: datetime) -> dict[str, Any]:
    """A row of ``audit.parity``."""
    digests = unit.source or {}
    return {
        "table_name": unit.table.name,
        "slice": unit.part.number,
        "slices": unit.part.of,
        "ranges": len(digests),
        "rows": sum(one.rows for one in digests.values()),
        "differing": len(unit.differing),
        "seconds": unit.seconds,
        "verified_at": now if unit.source is not None else None,
    }
