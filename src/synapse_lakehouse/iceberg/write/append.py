"""Append rows to an Iceberg table without a JVM."""

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata


def append_rows(table: Table, rows: pa.Table, summary: Mapping[str, str] | None = None) -> None:
    """Append ``rows`` to ``table``, with ``summary`` in that of the snapshot.

    :raises CommitFailedException: when others committed meanwhile, each time that the table's properties let it try.
    """
    with _Transaction(table) as transaction:
        transaction.append(rows, snapshot_properties=dict(summary or {}))


class _Transaction(Transaction):
    """Works out the table's metadata when it changed. PyIceberg does so whenever it looks, some 20 times an append, and
    copies all that is in it: every snapshot that the table keeps."""

    _looked: tuple[tuple[object, object], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata as this transaction leaves it."""
        known, made_of = self._looked, (self._table.metadata, self._updates)
        if known is None or known[0][0] is not made_of[0] or known[0][1] is not made_of[1]:
            known = self._looked = (made_of, super().table_metadata)
        return known[1]
