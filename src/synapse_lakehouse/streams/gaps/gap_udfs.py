"""The Spark SQL function ``lost_event_ranges``, which the model ``gold.state_integrity`` calls once for each room."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from synapse_lakehouse.streams.gaps.lost_event_ranges import LocalEdge, compute_id_ranges

_RANGES = pa.list_(pa.struct([("event_id", pa.string()), ("first_id", pa.int64()), ("last_id", pa.int64())]))


def register(spark: SparkSession) -> None:
    """Register ``lost_event_ranges(lost, edges)`` with the session.

    ``lost`` is an array of structs with ``event_id`` and ``known_id``. ``edges`` is an array of structs with ``child``,
    ``parent``, ``child_id`` and ``parent_id``. The result is an array of structs with ``event_id``, ``first_id`` and
    ``last_id``: the ID ranges of :func:`compute_id_ranges`.
    """
    # PySpark's stubs require the function type, which arrow_udf infers from the annotations.
    function = arrow_udf(_lost_event_ranges, "array<struct<event_id string, first_id bigint, last_id bigint>>")  # type: ignore[call-overload]
    spark.udf.register("lost_event_ranges", function)


def _lost_event_ranges(lost: pa.Array, edges: pa.Array) -> pa.Array:
    rooms = []
    for events, room_edges in zip(lost.to_pylist(), edges.to_pylist(), strict=True):
        known_ids = {event["event_id"]: event["known_id"] for event in events if event["known_id"] is not None}
        event_ids = [event["event_id"] for event in events]
        bounds = compute_id_ranges(event_ids, [LocalEdge(**edge) for edge in room_edges or ()], known_ids)
        rooms.append([(event_id, low, high) for event_id, (low, high) in bounds.items()])
    return pa.array(rooms, _RANGES)
