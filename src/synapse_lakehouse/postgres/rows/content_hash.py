"""What rows contain, as one number that does not depend on their order."""

import threading
from collections.abc import Iterable, Sequence
from typing import Final

import duckdb
import pyarrow as pa

_MODULUS = 1 << 64


def hash_rows(batches: pa.RecordBatchReader | pa.Table, columns: Sequence[str]) -> int:
    """Sum of DuckDB's 64-bit hashes of all rows, modulo 2^64: 0 for no rows, and sums of parts add up.

    Comparable within one version of DuckDB, so never between runs.
    """
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    row = _duckdb().from_arrow(batches).aggregate(f"sum(hash({names})::hugeint)").fetchone()
    return int(row[0] or 0) % _MODULUS if row else 0


def combine_hashes(hashes: Iterable[int]) -> int:
    """The hash of parts together."""
    return sum(hashes) % _MODULUS


# One connection for each thread: who waits for another's keeps Python waiting, from where the other's rows may come.
_OF_THREAD: Final = threading.local()


def _duckdb() -> duckdb.DuckDBPyConnection:
    if not hasattr(_OF_THREAD, "connection"):
        _OF_THREAD.connection = duckdb.connect(config={"threads": 1})
    connection: duckdb.DuckDBPyConnection = _OF_THREAD.connection
    return connection
