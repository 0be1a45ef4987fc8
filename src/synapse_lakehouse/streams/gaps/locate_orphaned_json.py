"""Locate the IDs of events of which only the JSON is stored, if the room's event graph determines the IDs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import merge
from math import inf
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.streams.gaps.classify import Evidence
from synapse_lakehouse.streams.gaps.evidence import EVENT_COLUMN
from synapse_lakehouse.streams.gaps.infer_stream_ids import (
    AttestedId,
    EventEdge,
    IdRange,
    compute_id_spans,
    find_assigned_ranges,
)
from synapse_lakehouse.streams.stream_tables import StreamTables

_MAXIMUM_NEW_IDS: Final = 500_000
"""Maximum number of new JSON rows that are compared with events. If there are more, new orphans are assumed."""
_MAXIMUM_ORPHANS: Final = 1_000
"""Maximum number of events whose IDs are located."""
_SIGNS: Final = {"events": 1, "backfill": -1}

_EDGES: Final = """
with orphan_edges as (
    select event_id, prev_event_id from edges left semi join orphans using (event_id)
    union select event_id, prev_event_id from edges left semi join orphans on prev_event_id = orphans.event_id
)
select orphan_edges.event_id as child, prev_event_id as parent, later.stream_ordering as child_id,
    earlier.stream_ordering as parent_id
from orphan_edges left join events later on orphan_edges.event_id = later.event_id
left join events earlier on prev_event_id = earlier.event_id
"""


def may_have_new_orphans(tables: StreamTables) -> bool:
    """Return whether there may be new JSON without an event. The check rarely reads a large table."""
    if "event_json" not in tables.changed_tables():
        return False
    json = _new_event_ids(tables, "event_json")
    if json is None:
        return True
    events = _new_event_ids(tables, "events")
    unmatched = json if events is None else json.join(events, "event_id", "left_anti")
    ids = unmatched.limit(_MAXIMUM_NEW_IDS + 1).toArrow()
    count = int(ids.num_rows)
    if not count or count > _MAXIMUM_NEW_IDS:
        return count > 0
    known_ids = f.broadcast(tables.spark.createDataFrame(ids))
    return tables.current("events", "event_id").join(known_ids, "event_id", "left_semi").count() < count


def locate_orphans(
    tables: StreamTables, missing: DataFrame, evidenced: DataFrame | None, searched_before: Mapping[str, float]
) -> DataFrame | None:
    """Return missing IDs that certainly belonged to events whose JSON is still stored; None if there are none.

    The columns are ``EVIDENCE_COLUMNS``. An event's ID is assumed to be above the IDs of its parents and below the IDs
    of its children, also among negative IDs. Federated events may break this rule.

    :param missing: ranges of missing IDs: stream, first_id and last_id, as ``MISSING_RANGES`` returns them.
    :param evidenced: IDs with other evidence (``EVIDENCE_COLUMNS`` and ``EVENT_COLUMN``). Their events are skipped.
    :param searched_before: by stream, the ID up to which earlier runs searched for gaps. If an earlier run had the JSON
        of an event, but not its row, the event's ID is at or below ``searched_before``.
    """
    events = tables.current("events", "event_id", "stream_ordering")
    orphans = _orphans(tables, events)
    is_new = {row.event_id: row.is_new for row in orphans.collect()}
    if not is_new:
        return None
    views = {"orphans": orphans, "events": events, "edges": tables.current("event_edges", "event_id", "prev_event_id")}
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    edges = [EventEdge(*row) for row in tables.spark.sql(_EDGES).collect()]
    attested = [] if evidenced is None else _attested_ids(orphans, evidenced)
    spans = compute_id_spans(is_new, edges, attested)
    least, most = -searched_before["backfill"], searched_before["events"]
    is_first_search, is_bounded = least == -1 and most == 1, least > -inf and most < inf
    identified = {name.event for name in attested if name.is_own}
    searched = [
        (after, until)
        for event, (after, until) in spans.items()
        if event not in identified
        and (is_first_search or after >= most or until <= least or (is_bounded and is_new[event]))
    ]
    if not searched:
        return None
    # The shared IDs already have other evidence. They may belong to the searched events, or to other events of the same
    # transactions.
    shared = {name.id for name in attested if name.event not in identified}
    shared -= {name.id for name in attested if name.is_own}
    rows = [
        ("events" if stream_id > 0 else "backfill", "events", abs(stream_id), Evidence.EVENT_JSON.value, None)
        for stream_id in _assigned_ids(missing, searched, shared)
    ]
    if not rows:
        return None
    return tables.spark.createDataFrame(
        rows, "stream string, table_name string, id bigint, evidence string, explanation string"
    )


def _assigned_ids(
    missing: DataFrame, searched: Sequence[tuple[float, float]], shared: Collection[int]
) -> Iterator[int]:
    """Yield missing signed IDs that the events with the spans ``searched`` must have had, without the IDs ``shared``.

    :param missing: as for :func:`locate_orphans`.
    """
    ranges = _ordered_ranges(missing, min(after for after, _ in searched), max(until for _, until in searched))
    for first, last in find_assigned_ranges(
        lambda: merge(ranges(), ((stream_id, stream_id) for stream_id in sorted(shared))), searched
    ):
        yield from (stream_id for stream_id in range(first, last + 1) if stream_id not in shared)


def _orphans(tables: StreamTables, events: DataFrame) -> DataFrame:
    """Return events of which only the JSON is stored. Columns: event_id, is_new (the previous release lacks the JSON).

    Events with new JSON come first.

    :param events: event_id and stream_ordering of the events on the run's branch.
    """
    unmatched = tables.current("event_json", "event_id").join(events, "event_id", "left_anti")
    previous = tables.previous_version("event_json")
    if previous is None:
        marked = unmatched.withColumn("is_new", f.lit(tables.previous is not None))
    else:
        released = previous.select("event_id", f.lit(True).alias("is_released"))
        marked = unmatched.join(released, "event_id", "left").select(
            "event_id", f.isnull("is_released").alias("is_new")
        )
    return marked.orderBy(f.desc("is_new"), "event_id").limit(_MAXIMUM_ORPHANS).persist()


def _attested_ids(orphans: DataFrame, evidenced: DataFrame) -> list[AttestedId]:
    """Return IDs that other rows record for ``orphans``.

    :param orphans: the result of :func:`_orphans`. ``evidenced``: as for :func:`locate_orphans`.
    """
    rows = evidenced.join(f.broadcast(orphans.select(EVENT_COLUMN)), EVENT_COLUMN, "left_semi")
    return [
        AttestedId(row.event_id, _SIGNS[row.stream] * row.id, is_own=row.evidence != Evidence.DELTA.value)
        for row in rows.select(EVENT_COLUMN, "stream", "id", "evidence").collect()
    ]


def _ordered_ranges(missing: DataFrame, after: float, until: float) -> Callable[[], Iterator[IdRange]]:
    """Return a function that iterates over the ``missing`` ranges between two signed IDs in little memory.

    :param missing: as for :func:`locate_orphans`.
    """
    sign = f.when(f.col("stream") == "backfill", _SIGNS["backfill"]).otherwise(_SIGNS["events"])
    ends = [sign * f.col("first_id"), sign * f.col("last_id")]
    ranges = (
        missing.where(f.col("stream").isin(*_SIGNS))
        .select(f.least(*ends).alias("first_id"), f.greatest(*ends).alias("last_id"))
        .where((f.col("last_id") > after) & (f.col("first_id") < until))
        .orderBy("first_id")
    )

    def iterate() -> Iterator[IdRange]:
        for row in ranges.toLocalIterator():
            yield row.first_id, row.last_id

    return iterate


def _new_event_ids(tables: StreamTables, name: str) -> DataFrame | None:
    """Return the event_id of rows of a table that were added or changed since the previous release; None if unknown."""
    changed = tables.changed_rows(name, tables.snapshot_in(tables.previous, name))
    return None if changed is None else changed.where("_change_type = 'INSERT'").select("event_id").distinct()
