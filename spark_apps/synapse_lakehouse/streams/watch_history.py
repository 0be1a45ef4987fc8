"""The history of looks at the streams: ``audit.stream_watch``."""

from collections.abc import Collection
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, GreaterThanOrEqual

from synapse_lakehouse.lake import audit
from synapse_lakehouse.streams.watch import Look

TABLE: Final = "audit.stream_watch"
_NEAR: Final = (timedelta(minutes=30), timedelta(days=2))


def last(catalog: Catalog) -> dict[str, Look]:
    """The latest look at each stream by its name; empty where nobody looked yet."""
    table = catalog.load_table(TABLE)
    now = datetime.now(UTC)
    # Every look is a file: the recent ones are few, and only after a long pause are all of them read.
    filters: list[BooleanExpression] = [
        GreaterThanOrEqual(term="watched_at", value=(now - near).isoformat()) for near in _NEAR
    ]
    for wanted in (*filters, AlwaysTrue()):
        rows = table.scan(row_filter=wanted).to_arrow().sort_by("watched_at").to_pylist()
        if rows:
            return {row["stream"]: _look(row) for row in rows}
    return {}


def record(catalog: Catalog, looks: Collection[Look]) -> None:
    """Append ``looks``."""
    audit.append(catalog, TABLE, [_row(one) for one in looks])


def _row(look: Look) -> dict[str, Any]:
    maps = {"writers": sorted(look.writers.items()), "unmoved_since": sorted(look.unmoved_since.items())}
    return asdict(look) | maps


def _look(row: dict[str, Any]) -> Look:
    lists = {"missing_writers": tuple(row["missing_writers"]), "vanished": tuple(row["vanished"])}
    return Look(**row | lists | {"writers": dict(row["writers"]), "unmoved_since": dict(row["unmoved_since"])})
