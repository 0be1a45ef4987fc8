"""Hash the content of rows, independently of their order."""

import threading
from collections.abc import Iterable, Sequence
from typing import Final

import duckdb
import pyarrow as pa

_MODULUS = 1 << 64


def hash_rows(batches: pa.RecordBatchReader | pa.Table, columns: Sequence[str]) -> int:
    """Return the sum of DuckDB's 64-bit hashes of the ``columns`` of all rows, modulo 2^64; 0 for no rows.

    The hash depends on the version of DuckDB, so hashes of different runs are not comparable.
    """
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    row = _thread_connection().from_arrow(batches).aggregate(f"sum(hash({names})::hugeint)").fetchone()
    return int(row[0] or 0) % _MODULUS if row else 0


def combine_hashes(hashes: Iterable[int]) -> int:
    """Combine the ``hashes`` of the parts of a table into the hash of all rows."""
    return sum(hashes) % _MODULUS


# Each thread has its own connection. A thread that waits for a shared connection would hold the GIL, while the query of
# the other thread may need rows from the waiting thread.
_THREAD_LOCAL: Final = threading.local()


def _thread_connection() -> duckdb.DuckDBPyConnection:
    if not hasattr(_THREAD_LOCAL, "connection"):
        _THREAD_LOCAL.connection = duckdb.connect(config={"threads": 1})
    connection: duckdb.DuckDBPyConnection = _THREAD_LOCAL.connection
    return connection
