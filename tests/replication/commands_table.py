"""Create batches for ``bronze.replication_commands``, and read its rows."""

from typing import Any

from pyiceberg.catalog import Catalog

from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.tap.iceberg_sink import Batch
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor
from tests.replication.database import CATALOGUE

EP1 = ("events", "ep1")


def new_batch() -> Batch:
    return Batch(RowRedactor(CATALOGUE), "redis", Dialect.REDIS)


def read_commands(catalog: Catalog, **expected: str) -> list[dict[str, Any]]:
    rows = catalog.load_table(COMMANDS_TABLE).scan().to_arrow().sort_by("received_at").to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in expected.items())]
