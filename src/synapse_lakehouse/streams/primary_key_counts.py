"""Measure the keys of every bronze table: rows of ``audit.table_facts``.

One query measures all tables, because most of a homeserver's many tables are small.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.streams.stream_tables import StreamTables, select_sql


def measure_table_facts(tables: StreamTables, unchanged_facts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of ``audit.table_facts``.

    :param unchanged_facts: by table, the row of the previous release for a table whose Iceberg snapshot is the same.
        These tables are not measured again.
    """
    measured = [table for table in tables.catalogue.copied_tables() if table.name not in unchanged_facts]
    counts = _count_keys(tables, measured, f.xxhash64("key"))
    # If a table has fewer hashes than keys, some keys are repeated or share a hash. Then the keys are compared.
    ambiguous = [
        table for table in measured if (row := counts.get(table.name)) and row.rows > row.null_keys + row["keys"]
    ]
    counts |= _count_keys(tables, ambiguous, f.col("key"))
    now = datetime.now(UTC)
    names = ("table_name", "rows", "null_keys", "duplicate_keys", "snapshot_id")
    facts = [{name: row[name] for name in names} | {"measured_at": now} for row in unchanged_facts.values()]
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
    """Return a SELECT of table_name, has_null (whether a column that must not be NULL is NULL) and key."""
    required = [f"{name} is null" for name in table.primary_key if name not in table.nullable_key]
    key = ", ".join(f"cast({name} as string)" for name in table.primary_key)
    has_null = " or ".join(required) or "false"
    return select_sql(table, {"table_name": f"'{table.name}'", "has_null": has_null, "key": f"array({key})"})
