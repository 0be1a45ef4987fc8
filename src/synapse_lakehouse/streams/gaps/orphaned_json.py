"""Events whose JSON is there without them: which ids they had, where the graph of their rooms leaves no others."""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from math import inf
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.iceberg.read import snapshot_diff
from synapse_lakehouse.streams.gaps.classify import Evidence
from synapse_lakehouse.streams.gaps.event_ids import (
    AttestedId,
    EventEdge,
    IdRange,
    compute_id_spans,
    find_assigned_ranges,
)
from synapse_lakehouse.streams.gaps.evidence import EVENT_COLUMN
from synapse_lakehouse.streams.stream_tables import StreamTables

_MOST: Final = 1_000
"""So many are located; of more, those that are located are named all the same."""
_SIGNS: Final = {"events": 1, "backfill": -1}

_EDGES: Final = """
with touching as (
    select event_id, prev_event_id from edges left semi join orphans using (event_id)
    union select event_id, prev_event_id from edges left semi join orphans on prev_event_id = orphans.event_id
)
select touching.event_id as child, prev_event_id as parent, later.stream_ordering as child_id,
    earlier.stream_ordering as parent_id
from touching left join events later on touching.event_id = later.event_id
left join events earlier on prev_event_id = earlier.event_id
"""


def may_have_new_orphans(held: StreamTables) -> bool:
    """Whether JSON without an event may have come since the release before, where there was none: mostly it has not,
    and then no large table is read."""
    if "event_json" not in held.changed_names():
        return False
    json = _changed_events(held, "event_json")
    if json is None:
        return True
    events = _changed_events(held, "events")
    alone = json if events is None else json.filter(pc.invert(pc.is_in(json, events)))
    if not len(alone):
        return False
    ids = held.spark.createDataFrame(pa.table({"event_id": alone}))
    return held.now("events", "event_id").join(f.broadcast(ids), "event_id", "left_semi").count() < len(alone)


def locate_orphans(
    held: StreamTables, missing: DataFrame, witnessed: DataFrame | None, closed_before: Mapping[str, float]
) -> DataFrame | None:
    """Missing ids that events must have had whose JSON is still there, in ``witnesses.COLUMNS``; None without any.

    An event comes after those that it points at and before those that point at it, also where ids are negative:
    federated events may come in another order, which is not known of those that are gone.

    :param missing: stream, first_id and last_id, as ``queries.MISSING`` gives them.
    :param witnessed: ids of which others tell, in ``witnesses.COLUMNS``, ``EVENT``: an event that they name is not to
        be located.
    :param closed_before: by stream, up to which id gaps were searched by earlier runs: an event that was lost there is
        none of these.
    """
    events = held.now("events", "event_id", "stream_ordering")
    orphans = _orphans(held, events)
    is_new = {row.event_id: row.is_new for row in orphans.collect()}
    if not is_new:
        return None
    views = {"orphans": orphans, "events": events, "edges": held.now("event_edges", "event_id", "prev_event_id")}
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    edges = [EventEdge(*row) for row in held.spark.sql(_EDGES).collect()]
    names = [] if witnessed is None else _names(orphans, witnessed)
    between = compute_id_spans(is_new, edges, names)
    least, most = -closed_before["backfill"], closed_before["events"]
    everything, bounded = least == -1 and most == 1, least > -inf and most < inf
    identified = {name.event for name in names if name.is_own}
    searched = [
        (after, until)
        for event, (after, until) in between.items()
        if event not in identified and (everything or after >= most or until <= least or (bounded and is_new[event]))
    ]
    if not searched:
        return None
    # Known to be lost, but not whether these events or others that were stored with them had them.
    told = {name.id for name in names if name.event not in identified} - {name.id for name in names if name.is_own}
    ranges = _in_order(missing, min(after for after, _ in searched), max(until for _, until in searched))
    rows = [
        ("events" if one > 0 else "backfill", "events", abs(one), Evidence.EVENT_JSON.value, None)
        for first, last in find_assigned_ranges(lambda: merge(ranges(), ((one, one) for one in sorted(told))), searched)
        for one in range(first, last + 1)
        if one not in told
    ]
    if not rows:
        return None
    return held.spark.createDataFrame(
        rows, "stream string, table_name string, id bigint, witness string, explanation string"
    )


def _orphans(held: StreamTables, events: DataFrame) -> DataFrame:
    """Columns: event_id, is_new (the release before does not have its JSON); of many, the new ones."""
    alone = held.now("event_json", "event_id").join(events, "event_id", "left_anti")
    before = held.before("event_json")
    if before is None:
        marked = alone.withColumn("is_new", f.lit(held.accepted is not None))
    else:
        known = before.select("event_id", f.lit(True).alias("is_known"))
        marked = alone.join(known, "event_id", "left").select("event_id", f.isnull("is_known").alias("is_new"))
    return marked.orderBy(f.desc("is_new"), "event_id").limit(_MOST).persist()


def _names(orphans: DataFrame, witnessed: DataFrame) -> list[AttestedId]:
    """What is told of ids of ``orphans``."""
    found = witnessed.join(f.broadcast(orphans.select(EVENT_COLUMN)), EVENT_COLUMN, "left_semi")
    return [
        AttestedId(row.event_id, _SIGNS[row.stream] * row.id, is_own=row.witness != Evidence.DELTA.value)
        for row in found.select(EVENT_COLUMN, "stream", "id", "witness").collect()
    ]


def _in_order(missing: DataFrame, after: float, until: float) -> Callable[[], Iterator[IdRange]]:
    """Gives what is ``missing`` between two ids, with their signs, as often as it is called, and holds none of it."""
    sign = f.when(f.col("stream") == "backfill", _SIGNS["backfill"]).otherwise(_SIGNS["events"])
    ends = [sign * f.col("first_id"), sign * f.col("last_id")]
    ranges = (
        missing.where(f.col("stream").isin(*_SIGNS))
        .select(f.least(*ends).alias("first_id"), f.greatest(*ends).alias("last_id"))
        .where((f.col("last_id") > after) & (f.col("first_id") < until))
        .orderBy("first_id")
    )

    def give() -> Iterator[IdRange]:
        for row in ranges.toLocalIterator():
            yield row.first_id, row.last_id

    return give


def _changed_events(held: StreamTables, name: str) -> pa.Array | None:
    """Ids of events whose rows in a table came, went or changed since the release before; None: nobody can tell."""
    then = held.remembered(name, held.accepted)
    if then is None or name not in held.snapshots:
        return None
    found = snapshot_diff.find_changed_keys(
        held.lake.load_table(f"bronze.{name}"), then, held.snapshots[name], ["event_id"]
    )
    return None if found is None else found["event_id"].combine_chunks().unique()
