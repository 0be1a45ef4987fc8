"""Write SQL for DuckDB: quoted names and literals, scans of Iceberg tables. Find the table names in a query."""

import re
from typing import Final

_TABLE: Final = re.compile(r'(?=\b(\w+)["`]?\s*\.\s*["`]?(\w+))')


def find_table_names(sql: str) -> set[str]:
    """Return possible table names in ``sql``: all pairs of words that are joined by a dot, in lower case."""
    return {f"{schema}.{table}".lower() for schema, table in _TABLE.findall(sql)}


def iceberg_scan_sql(location: str, snapshot: int | None = None) -> str:
    """Return the table function that reads the Iceberg table with the metadata at ``location``, by default main."""
    at = "" if snapshot is None else f", snapshot_from_id => {int(snapshot)}"
    return f"iceberg_scan({quote_literal(location)}{at})"


def quote_literal(text: str) -> str:
    """Return ``text`` as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_table_name(name: str) -> str:
    """Return ``schema.table`` with both parts quoted as SQL identifiers."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split(".", 1))
