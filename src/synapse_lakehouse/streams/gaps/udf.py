"""``lost_event_ranges`` in Spark's SQL, which the model ``gold.state_integrity`` calls once for each room."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from synapse_lakehouse.streams.gaps.lost_event_ranges import LocalEdge, compute_id_ranges

_RANGES = pa.list_(pa.struct([("event_id", pa.string()), ("first_id", pa.int64()), ("last_id", pa.int64())]))


def register(spark: SparkSession) -> None:
    """Let the session's SQL call ``lost_event_ranges(lost, edges)``.

    ``lost`` is an array of structs of ``event_id`` and ``known_id``, ``edges`` one of ``child``, ``parent``,
    ``child_id`` and ``parent_id``. It returns an array of structs of ``event_id``, ``first_id`` and ``last_id``, see
    :func:`id_ranges`.
    """
    # Its types do not know a call without a kind, which follows from the hints.
    function = arrow_udf(_ranges, "array<struct<event_id string, first_id bigint, last_id bigint>>")  # type: ignore[call-overload]
    spark.udf.register("lost_event_ranges", function)


def _ranges(lost: pa.Array, edges: pa.Array) -> pa.Array:
    rooms = []
    for events, pairs in zip(lost.to_pylist(), edges.to_pylist(), strict=True):
        known = {one["event_id"]: one["known_id"] for one in events if one["known_id"] is not None}
        found = compute_id_ranges([one["event_id"] for one in events], [LocalEdge(**one) for one in pairs or ()], known)
        rooms.append([(event, low, high) for event, (low, high) in found.items()])
    return pa.array(rooms, _RANGES)
