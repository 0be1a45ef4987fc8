"""Which rows of a large table that dbt builds are to be built anew: those of what changed since it was built."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.lake import remaking
from synapse_lakehouse.lake.changes import changed_keys
from synapse_lakehouse.lake.tables import load_or_none

WORTH_IT: Final = 1_000_000
"""A table of fewer rows is built anew sooner than what changed is told apart."""

_READ_FROM: Final = "read-from"
_MODEL, _BY_EVENT, _BY_ROOM = "silver.event_fields", ("bronze.event_json", "bronze.events"), "bronze.rooms"


@dataclass(frozen=True)
class Increment:
    """What ``silver.event_fields`` is built from.

    ``read``: the snapshots of what it reads. ``events`` and ``rooms``: ids of those that changed, of a table that is
    built in part; None of one that is built as a whole.
    """

    read: str
    events: pa.Table | None
    rooms: pa.Table | None

    def variables(self) -> dict[str, object]:
        """What the materialization ``rebuild`` asks for."""
        name = _MODEL.partition(".")[2]
        return {"read_from": {name: self.read}, "increments": [] if self.events is None else [name]}

    def tell(self, spark: SparkSession) -> None:
        """Make the view ``changed_events`` of the ids of changed events, and of all events of changed rooms."""
        if self.events is not None and self.rooms is not None:
            spark.createDataFrame(self.events).createOrReplaceTempView("events_that_changed")
            spark.createDataFrame(self.rooms).createOrReplaceTempView("rooms_that_changed")
            changed = spark.sql("""
                select event_id from events_that_changed
                union
                select event_id from bronze.events where room_id in (select room_id from rooms_that_changed)
            """)
            changed.cache().createOrReplaceTempView("changed_events")


def of_event_fields(catalog: Catalog, branch: str, worth_it: int = WORTH_IT) -> Increment:
    """What ``silver.event_fields`` on ``branch`` has to be built from."""
    names = (*_BY_EVENT, _BY_ROOM)
    now = {name: remaking.snapshot_of(load_or_none(catalog, name), branch) for name in names}
    read = " ".join(f"{name}={one.snapshot_id if one else ''}" for name, one in now.items())
    before = remaking.said(remaking.snapshot_of(load_or_none(catalog, _MODEL), branch), _READ_FROM)
    whole = Increment(read, None, None)
    if not before or int(remaking.said(now[_BY_EVENT[0]], "total-records") or 0) < worth_it:
        return whole
    was = dict(one.split("=") for one in before.split())
    changed = {}
    for name, snapshot in now.items():
        table, key = load_or_none(catalog, name), "room_id" if name == _BY_ROOM else "event_id"
        if table is None or snapshot is None or not was.get(name):
            return whole
        keys = changed_keys(table, int(was[name]), snapshot.snapshot_id, [key])
        if keys is None:
            return whole
        changed[name] = keys
    events = pa.concat_tables([changed[name] for name in _BY_EVENT]).group_by("event_id").aggregate([])
    return Increment(read, events, changed[_BY_ROOM])
