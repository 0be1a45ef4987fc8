"""Events judged inside Spark's SQL: the function ``judge_event`` that the model ``gold.event_hashes`` calls."""

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from synapse_lakehouse.events import hashing, redaction

RULES: Final = hashlib.sha256(
    b"".join(Path(str(source)).read_bytes() for source in (hashing.__file__, redaction.__file__))
).hexdigest()[:12]
"""Version of the rules: where it differs, a verdict is of other rules."""

_JUDGED: Final = pa.struct([("verdict", pa.string()), ("reason", pa.string())])


def register(spark: SparkSession) -> None:
    """Let the session's SQL call ``judge_event(event_id, room_id, json, room_version, format_version)``.

    It gives a struct of ``verdict`` and ``reason``, see :func:`hashing.judge`.
    """
    # Its types do not know a call without a kind, which follows from the hints.
    function = arrow_udf(_judged, "verdict string, reason string")  # type: ignore[call-overload]
    spark.udf.register("judge_event", function)


def _judged(
    event_id: pa.Array, room_id: pa.Array, text: pa.Array, room_version: pa.Array, format_version: pa.Array
) -> pa.Array:
    columns = (event_id, room_id, text, room_version, format_version)
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([hashing.judge(*row)._asdict() for row in rows], _JUDGED)
