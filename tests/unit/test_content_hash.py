"""Content hashes do not depend on the order of rows or on concurrency."""

import subprocess
import sys

import pyarrow as pa

from synapse_lakehouse.postgres.rows.content_hash import combine_hashes, hash_rows

CONCURRENT_HASHES = """
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from synapse_lakehouse.postgres.rows.content_hash import hash_rows

schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
batch = pa.record_batch([list(range(50)), ["text"] * 50], schema=schema)

def hash_batches(number):
    return hash_rows(pa.RecordBatchReader.from_batches(schema, (batch for _ in range(20))), schema.names)

with ThreadPoolExecutor(4) as pool:
    print(len(set(pool.map(hash_batches, range(400)))))
"""


def test_parts_add_up_in_any_order() -> None:
    table = pa.table({"id": [1, 2, 3], "text": ["a", None, "c"]})
    parts = [hash_rows(table.slice(offset, 1), table.column_names) for offset in (2, 0, 1)]
    assert combine_hashes(parts) == hash_rows(table, table.column_names) != 0
    assert hash_rows(table.slice(0, 0), table.column_names) == 0


def test_threads_do_not_deadlock() -> None:
    """DuckDB reads the rows from Python generators, so a thread that waits for DuckDB must not hold the GIL."""
    result = subprocess.run(
        [sys.executable, "-c", CONCURRENT_HASHES], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout == "1\n", result.stderr
