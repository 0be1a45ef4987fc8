"""Measure the keys of every bronze table: rows of ``audit.table_facts``.

One query measures all tables, because most of a homeserver's many tables are small. In a large table whose keys were
unique in the previous release, only keys of inserted rows can repeat. So only these keys are compared with all others.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, Row
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.streams import stream_tables
from synapse_lakehouse.streams.stream_tables import StreamTables, select_sql

Facts = Mapping[str, Mapping[str, Any]]
"""Rows of ``audit.table_facts``, by table."""


def measure_table_facts(tables: StreamTables, previous_facts: Facts) -> list[dict[str, Any]]:
    """Return rows of ``audit.table_facts``.

    :param previous_facts: rows of the previous release. Tables whose Iceberg snapshot is the same are not measured.
    """
    unchanged = list_unchanged_tables(tables, previous_facts)
    measured = [table for table in tables.catalogue.copied_tables() if table.name not in unchanged]
    counts = _count_new_keys(tables, measured, previous_facts)
    counts |= _count_keys(tables, [table for table in measured if table.name not in counts], f.xxhash64("key"))
    # If a table has fewer hashes than rows with a key, keys are repeated or share a hash. Then the keys are compared.
    ambiguous = [
        table for table in measured if (row := counts.get(table.name)) and row.rows > row.null_keys + row["keys"]
    ]
    counts |= _count_keys(tables, ambiguous, f.col("key"))
    now = datetime.now(UTC)
    names = ("table_name", "rows", "null_keys", "duplicate_keys", "snapshot_id")
    facts = [{name: previous_facts[table][name] for name in names} | {"measured_at": now} for table in unchanged]
    for table in measured:
        row = counts.get(table.name)
        rows, null_keys, distinct_keys = (row.rows, row.null_keys, row["keys"]) if row else (0, 0, 0)
        facts.append(
            {
                "table_name": table.name,
                "rows": rows,
                "null_keys": null_keys,
                "duplicate_keys": rows - null_keys - distinct_keys,
                "snapshot_id": tables.snapshots.get(table.name),
                "measured_at": now,
            }
        )
    return facts


def list_unchanged_tables(tables: StreamTables, previous_facts: Facts) -> list[str]:
    """Return the tables whose Iceberg snapshot is that of ``previous_facts``."""
    return [name for name, row in previous_facts.items() if row["snapshot_id"] == tables.snapshots.get(name, -1)]


def _count_new_keys(tables: StreamTables, measured: Sequence[Table], previous_facts: Facts) -> dict[str, Row]:
    """Return the counts of :func:`_count_keys` for large tables in which no key repeats.

    A table is absent if a key may repeat, and if the rows that were inserted since the previous release are unknown or
    too many. Then all keys of the table are counted.
    """
    inserted: dict[str, pa.ChunkedArray] = {}
    for table in measured:
        others = sum(map(len, inserted.values()))
        new_hashes = _read_inserted_hashes(tables, table, previous_facts.get(table.name), others)
        if new_hashes is not None:
            inserted[table.name] = new_hashes
    if not inserted:
        return {}
    names = [name for name, hashes in inserted.items() for _ in range(len(hashes))]
    hashes = pa.chunked_array([chunk for hashes in inserted.values() for chunk in hashes.chunks], pa.int64())
    is_new = tables.spark.createDataFrame(pa.table({"table_name": pa.array(names, pa.string()), "hash": hashes}))
    is_new = f.broadcast(is_new.withColumn("is_new", f.lit(True)))
    keys = tables.query([_keys_sql(table) for table in measured if table.name in inserted])
    keys = keys.withColumn("hash", f.when(~f.col("has_null"), f.xxhash64("key")))
    # All other keys of a table are one group, so few rows are shuffled.
    groups = (
        keys.join(is_new, ["table_name", "hash"], "left")
        .groupBy("table_name", f.when(f.col("is_new"), f.col("hash")).alias("new_hash"))
        .agg(f.count(f.lit(1)).alias("rows"), f.count_if("has_null").alias("null_keys"))
    )
    rows = groups.groupBy("table_name").agg(
        f.sum("rows").alias("rows"),
        f.sum("null_keys").alias("null_keys"),
        f.expr("sum(rows) - sum(null_keys)").alias("keys"),
        f.max(f.when(f.col("new_hash").isNotNull(), f.col("rows"))).alias("occurrences"),
    )
    return {row.table_name: row for row in rows.collect() if row.occurrences in (None, 1)}


def _read_inserted_hashes(
    tables: StreamTables, table: Table, previous_fact: Mapping[str, Any] | None, others: int
) -> pa.ChunkedArray | None:
    """Return the hashes of the keys in inserted rows; None if all keys have to be counted.

    :param others: number of hashes of other tables.
    """
    if previous_fact is None or previous_fact["duplicate_keys"]:
        return None
    if previous_fact["rows"] < stream_tables.LARGE_TABLE_ROWS:
        return None
    changed = tables.changed_rows(table.name, previous_fact["snapshot_id"])
    if changed is None:
        return None
    key, has_null = _key_sql(table)
    inserted = changed.where(f"_change_type = 'INSERT' and not ({has_null})")
    limit = stream_tables.MAXIMUM_CHANGED_IDS - others
    hashes = inserted.selectExpr(f"xxhash64({key}) as hash").distinct().limit(limit + 1).toArrow()["hash"]
    return hashes if len(hashes) <= limit else None


def _count_keys(tables: StreamTables, counted: Sequence[Table], compared: Column) -> dict[str, Row]:
    """Return, by table, the counts rows, null_keys, and keys: distinct values of ``compared`` in rows without NULL."""
    if not counted:
        return {}
    keys = tables.query([_keys_sql(table) for table in counted]).groupBy("table_name")
    counts = {
        "rows": f.count(f.lit(1)),
        "null_keys": f.count_if("has_null"),
        "keys": f.count_distinct(f.when(~f.col("has_null"), compared)),
    }
    rows = keys.agg(*(count.alias(name) for name, count in counts.items())).collect()
    return {row.table_name: row for row in rows}


def _keys_sql(table: Table) -> str:
    """Return a SELECT of table_name, has_null and key, as in :func:`_key_sql`."""
    key, has_null = _key_sql(table)
    return select_sql(table, {"table_name": f"'{table.name}'", "has_null": has_null, "key": key})


def _key_sql(table: Table) -> tuple[str, str]:
    """Return the SQL of a row's key, and the SQL condition that a required column of the key is NULL."""
    required = [f"{name} is null" for name in table.primary_key if name not in table.nullable_key]
    key = ", ".join(f"cast({name} as string)" for name in table.primary_key)
    return f"array({key})", " or ".join(required) or "false"
