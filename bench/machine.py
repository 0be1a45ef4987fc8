"""What the figures were measured on."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from psycopg import sql

from bench.source import Source


def described(source: Source | None = None) -> dict[str, str]:
    """Names and values for the head of the report; with ``source``, what is read from there too."""
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    database, packages = {}, ["pyspark", "pyarrow", "duckdb"]
    if source:
        packages = ["pyspark", "pyarrow", "adbc-driver-postgresql", "connectorx"]
        with source.connect() as connection:
            row = connection.execute("select current_setting('server_version')").fetchone()
        database = {"PostgreSQL": str(row[0]) if row else "?"}
    return {
        "Measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Processor": f"{os.cpu_count()} cores, {model[0].partition(': ')[2] if model else platform.machine()}",
        "Memory": f"{memory / 1024**2:.0f} GiB",
        "Load before": load(),
        **database,
        "Python packages": ", ".join(f"{name} {version(name)}" for name in packages),
    }


def load() -> str:
    """How busy the machine is, of which the bench's own share is not told apart."""
    return f"{os.getloadavg()[1]:.1f} processes wanted to run (5 minutes)"


def sizes(source: Source, tables: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """By table: rows, and bytes of its heap in PostgreSQL."""
    rows, size = {}, {}
    with source.connect() as connection:
        for table in tables:
            query = sql.SQL("select count(*), pg_relation_size({}) from {}")
            row = connection.execute(query.format(table, sql.Identifier(table))).fetchone()
            assert row is not None
            rows[table], size[table] = row
    return rows, size
