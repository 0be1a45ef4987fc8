"""Read and append the observations in ``audit.stream_watch``."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.read.recent_rows import read_newest_rows
from synapse_lakehouse.streams.watch.observe_stream import StreamObservation

TABLE: Final = "audit.stream_watch"

_MAPS: Final = ("writers", "unchanged_since", "furthest_positions")


def read_latest(catalog: Catalog) -> dict[str, StreamObservation]:
    """Return the latest observation of each stream by its name; empty if there are no observations."""
    rows = read_newest_rows(catalog.load_table(TABLE), "watched_at").to_pylist()
    return {row["stream"]: _from_row(row) for row in rows}


def append_observations(catalog: Catalog, observations: Collection[StreamObservation]) -> None:
    """Append ``observations``."""
    store.append_audit_rows(catalog, TABLE, [_to_row(observation) for observation in observations])


def _to_row(observation: StreamObservation) -> dict[str, Any]:
    return asdict(observation) | {name: sorted(getattr(observation, name).items()) for name in _MAPS}


def _from_row(row: dict[str, Any]) -> StreamObservation:
    lists = {"missing_writers": tuple(row["missing_writers"]), "vanished_writers": tuple(row["vanished_writers"])}
    return StreamObservation(**row | lists | {name: dict(row[name]) for name in _MAPS})
