"""The history of looks at the streams: ``audit.stream_watch``."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.lake import audit
from synapse_lakehouse.lake.recent import newest
from synapse_lakehouse.streams.watch import Look

TABLE: Final = "audit.stream_watch"


def last(catalog: Catalog) -> dict[str, Look]:
    """The latest look at each stream by its name; empty where nobody looked yet."""
    return {row["stream"]: _look(row) for row in newest(catalog.load_table(TABLE), "watched_at").to_pylist()}


def record(catalog: Catalog, looks: Collection[Look]) -> None:
    """Append ``looks``."""
    audit.append(catalog, TABLE, [_row(one) for one in looks])


def _row(look: Look) -> dict[str, Any]:
    maps = {"writers": sorted(look.writers.items()), "unmoved_since": sorted(look.unmoved_since.items())}
    return asdict(look) | maps


def _look(row: dict[str, Any]) -> Look:
    lists = {"missing_writers": tuple(row["missing_writers"]), "vanished": tuple(row["vanished"])}
    return Look(**row | lists | {"writers": dict(row["writers"]), "unmoved_since": dict(row["unmoved_since"])})
