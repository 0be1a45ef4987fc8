"""Events whose JSON is there without them: which ids they had, where the graph of their rooms leaves no others."""

from collections.abc import Mapping
from math import inf
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.lake import changes
from synapse_lakehouse.streams.gaps import Witness
from synapse_lakehouse.streams.held import Held
from synapse_lakehouse.streams.locating import Edge, spans, taken

_MOST: Final = 1_000
"""So many are located; of more, those that are located are named all the same."""

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


def may_be_new(held: Held) -> bool:
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


def located(held: Held, missing: DataFrame, closed_before: Mapping[str, float]) -> DataFrame | None:
    """Missing ids that events must have had whose JSON is still there, in ``witnesses.COLUMNS``; None without any.

    An event comes after those that it points at and before those that point at it, also where ids are negative:
    federated events may come in another order, which is not known of those that are gone.

    :param missing: stream, first_id and last_id, as ``queries.MISSING`` gives them.
    :param closed_before: by stream, up to which id gaps were searched by earlier runs: an event that was lost there is
        none of these.
    """
    events = held.now("events", "event_id", "stream_ordering")
    orphans = held.now("event_json", "event_id").join(events, "event_id", "left_anti")
    orphans = orphans.orderBy("event_id").limit(_MOST).persist()
    ids = {row.event_id for row in orphans.collect()}
    if not ids:
        return None
    before = held.before("event_json")
    new = orphans if before is None else orphans.join(before, "event_id", "left_anti")
    is_new = {row.event_id for row in new.select("event_id").collect()} if held.accepted else set[str]()
    views = {"orphans": orphans, "events": events, "edges": held.now("event_edges", "event_id", "prev_event_id")}
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    edges = [Edge(*row) for row in held.spark.sql(_EDGES).collect()]
    between = spans(ids, edges)
    least, most = -closed_before["backfill"], closed_before["events"]
    everything, bounded = least == -1 and most == 1, least > -inf and most < inf
    searched = [
        (after, until)
        for event, (after, until) in between.items()
        if everything or after >= most or until <= least or (bounded and event in is_new)
    ]
    signs = {"events": 1, "backfill": -1}
    ranges = sorted(
        (min(ends), max(ends))
        for row in missing.where(f.col("stream").isin(*signs)).toLocalIterator()
        for ends in [(signs[row.stream] * row.first_id, signs[row.stream] * row.last_id)]
    )
    rows = [
        ("events" if one > 0 else "backfill", "events", abs(one), Witness.EVENT_JSON.value, None)
        for first, last in taken(ranges, searched)
        for one in range(first, last + 1)
    ]
    if not rows:
        return None
    return held.spark.createDataFrame(
        rows, "stream string, table_name string, id bigint, witness string, explanation string"
    )


def _changed_events(held: Held, name: str) -> pa.Array | None:
    """Ids of events whose rows in a table came, went or changed since the release before; None: nobody can tell."""
    then = held.remembered(name, held.accepted)
    if then is None or name not in held.snapshots:
        return None
    found = changes.changed_keys(held.lake.load_table(f"bronze.{name}"), then, held.snapshots[name], ["event_id"])
    return None if found is None else found["event_id"].combine_chunks().unique()
