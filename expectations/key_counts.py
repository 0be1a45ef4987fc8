"""Count a table's keys with DuckDB."""

from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from synapse_lakehouse.iceberg.read.sql_text import quote_table_name


def count_keys_on_branch(
    catalog: Catalog, branch: str, name: str, key: tuple[str, ...], nullable: tuple[str, ...] = ()
) -> dict[str, int]:
    """Count the keys of the table ``name`` on ``branch``, or on main if the table has no such branch.

    Only the key's columns are read.

    :returns: as :func:`count_keys`; for a table without a key, only ``rows``; empty if the table does not exist.
    """
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return {}
    ref = table.refs().get(branch)
    scan = table.scan(selected_fields=key, snapshot_id=ref.snapshot_id if ref else None)
    return count_keys(scan.to_arrow_batch_reader(), key, nullable) if key else {"rows": scan.count()}


def count_keys(
    rows: pa.RecordBatchReader | pa.Table, key: tuple[str, ...], nullable: tuple[str, ...] = ()
) -> dict[str, int]:
    """Count ``rows``, ``null_keys`` and ``duplicate_keys``.

    ``null_keys``: rows with NULL in a key column that is not ``nullable``; ``duplicate_keys``: rows beyond the first
    with the same key.
    """
    columns = [quote_table_name(name) for name in key]
    is_complete = " and ".join(f"{quote_table_name(name)} is not null" for name in key if name not in nullable)
    with TemporaryDirectory() as spill, duckdb.connect(config={"temp_directory": spill}) as connection:
        counts = connection.from_arrow(rows).aggregate(
            f"count(*), count(*) filter ({is_complete}),"
            f" count(distinct row({', '.join(columns)})) filter ({is_complete})"
        )
        total, complete, distinct = counts.fetchall()[0]
    return {"rows": total, "null_keys": total - complete, "duplicate_keys": complete - distinct}
