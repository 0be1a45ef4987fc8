"""Events whose JSON is there without them: which id they had, where the graph of their room leaves but one."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.streams.held import Held

_LOCATED: Final = """
with orphans as (select json.event_id from json left anti join events using (event_id)),
lower as (
    select edges.event_id, max(earlier.stream_ordering) as above
    from edges left semi join orphans using (event_id)
    join events earlier on edges.prev_event_id = earlier.event_id group by edges.event_id
),
upper as (
    select edges.prev_event_id as event_id, min(later.stream_ordering) as below
    from edges join orphans on edges.prev_event_id = orphans.event_id
    join events later on edges.event_id = later.event_id group by edges.prev_event_id
),
candidates as (
    select lower.event_id, ranges.stream, greatest(ranges.low, lower.above + 1) as low,
        least(ranges.high, coalesce(upper.below - 1, ranges.high)) as high
    from lower left join upper using (event_id)
    join ranges on ranges.high > lower.above and ranges.low < coalesce(upper.below, ranges.low + 1)
)
select distinct min(stream) as stream, 'events' as table_name, abs(min(low)) as id,
    'event_json' as witness, cast(null as string) as explanation
from candidates group by event_id having sum(high - low + 1) = 1
"""


def located(held: Held, missing: DataFrame) -> DataFrame:
    """Missing ids that an event must have had whose JSON is still there, in ``witnesses.COLUMNS``.

    An event comes after those that it points at and before those that point at it, also where ids are negative.

    :param missing: stream, first_id and last_id, as ``queries.MISSING`` gives them.
    """
    is_negative = f.col("stream") == "backfill"
    views = {
        "json": held.now("event_json", "event_id"),
        "events": held.now("events", "event_id", "stream_ordering"),
        "edges": held.now("event_edges", "event_id", "prev_event_id"),
        "ranges": missing.where(f.col("stream").isin("events", "backfill")).select(
            "stream",
            f.when(is_negative, -f.col("last_id")).otherwise(f.col("first_id")).alias("low"),
            f.when(is_negative, -f.col("first_id")).otherwise(f.col("last_id")).alias("high"),
        ),
    }
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    return held.spark.sql(_LOCATED)
