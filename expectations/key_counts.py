"""Count a table's keys without a JVM."""

from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from synapse_lakehouse.iceberg.read.sql_text import quote_table_name


def count_keys_on_branch(
    catalog: Catalog, branch: str, name: str, key: tuple[str, ...], nullable: tuple[str, ...] = ()
) -> dict[str, int]:
    """Keys of the table ``name`` on ``branch``, or on main if it has no such branch: as readers will see it.

    Only the key's columns are read, through the catalog, so from wherever the warehouse is.

    :returns: as :func:`count_keys`; ``rows`` alone without a key; nothing if there is no such table.
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
    """``rows``, ``null_keys`` (rows with NULL in the key, but for what may be NULL there) and ``duplicate_keys`` (rows
    beyond the first of a key)."""
    columns = [quote_table_name(name) for name in key]
    is_whole = " and ".join(f"{quote_table_name(name)} is not null" for name in key if name not in nullable)
    with TemporaryDirectory() as spill, duckdb.connect(config={"temp_directory": spill}) as connection:
        counted = connection.from_arrow(rows).aggregate(
            f"count(*), count(*) filter ({is_whole}), count(distinct row({', '.join(columns)})) filter ({is_whole})"
        )
        every, whole, distinct = counted.fetchall()[0]
    return {"rows": every, "null_keys": every - whole, "duplicate_keys": whole - distinct}
