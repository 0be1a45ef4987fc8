"""Schema, key and time column of each audit table, read from ``dbt/models/audit/_audit__sources.yml``."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
import yaml

from synapse_lakehouse.catalogue import find_sources_file

_ARROW_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_NESTED: Final = re.compile(r"(map|array|struct)<(.*)>")


@dataclass(frozen=True)
class AuditTable:
    """The declaration of an audit table.

    ``key``: columns that identify a row within a run. ``written_at``: column with the time of writing.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    written_at: str

    @property
    def timestamps(self) -> list[str]:
        """All timestamp columns: first ``written_at``, then the others, the last declared column first."""
        names = [str(field.name) for field in reversed(self.schema) if pa.types.is_timestamp(field.type)]
        return [self.written_at, *(name for name in names if name != self.written_at)]


@cache
def load_audit_tables() -> dict[str, AuditTable]:
    """Return the audit tables by their full names, such as ``audit.ledger``."""
    sources = yaml.load(find_sources_file("audit/_audit__sources.yml").read_bytes(), yaml.CSafeLoader)["sources"]
    return {
        f"{source['schema']}.{table['name']}": AuditTable(
            pa.schema([(column["name"], _parse_type(column["data_type"])) for column in table["columns"]]),
            tuple(name for name in table["config"]["meta"]["primary_key"] if name != "run_id"),
            table["config"]["meta"]["written_at"],
        )
        for source in sources
        for table in source["tables"]
    }


def _parse_type(declared: str) -> pa.DataType:
    """Return the Arrow type of a Spark type. A nested type may contain only simple types, or structs of them."""
    nested = _NESTED.fullmatch(declared)
    if nested is None:
        return _ARROW_TYPES[declared]
    kind, inner = nested.groups()
    if kind == "array":
        return pa.list_(_parse_type(inner))
    if kind == "map":
        return pa.map_(*map(_parse_type, inner.split(",", 1)))
    return pa.struct(
        [(name, _parse_type(type_)) for name, _, type_ in (part.partition(":") for part in inner.split(","))]
    )
