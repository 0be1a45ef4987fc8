"""The history of looks at the streams: ``audit.stream_watch``."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.read.recent_rows import read_newest_rows
from synapse_lakehouse.streams.watch.observation import StreamObservation

TABLE: Final = "audit.stream_watch"

_MAPS: Final = ("writers", "unmoved_since", "furthest_writers")


def read_latest(catalog: Catalog) -> dict[str, StreamObservation]:
    """The latest look at each stream by its name; empty where nobody looked yet."""
    return {row["stream"]: _look(row) for row in read_newest_rows(catalog.load_table(TABLE), "watched_at").to_pylist()}


def append_observations(catalog: Catalog, looks: Collection[StreamObservation]) -> None:
    """Append ``looks``."""
    store.append_audit_rows(catalog, TABLE, [_row(one) for one in looks])


def _row(look: StreamObservation) -> dict[str, Any]:
    return asdict(look) | {name: sorted(getattr(look, name).items()) for name in _MAPS}


def _look(row: dict[str, Any]) -> StreamObservation:
    # Earlier versions did not keep how far a stream had been.
    row["furthest_handed_out"] = row["furthest_handed_out"] or 0
    lists = {"missing_writers": tuple(row["missing_writers"]), "vanished": tuple(row["vanished"])}
    return StreamObservation(**row | lists | {name: dict(row[name] or ()) for name in _MAPS})
