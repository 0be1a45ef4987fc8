"""The Spark SQL function ``load_event``: :func:`load_stored_event.load_event` on Arrow columns."""

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from synapse_lakehouse.events import event_hashes, load_stored_event, redaction, synapse_json, validate_event
from synapse_lakehouse.events.load_stored_event import LoadedEvent

RULES_FINGERPRINT: Final = hashlib.sha256(
    b"".join(
        Path(str(module.__file__)).read_bytes()
        for module in (load_stored_event, validate_event, synapse_json, event_hashes, redaction)
    )
).hexdigest()[:12]
"""Version of the rules. If it changes, dbt rebuilds the rows that were loaded by other rules."""

_KINDS: Final = {bool: ("boolean", pa.bool_()), int | None: ("int", pa.int32())}
_FIELDS: Final = [
    (name, *_KINDS.get(kind, ("string", pa.string()))) for name, kind in LoadedEvent.__annotations__.items()
]
_TYPE: Final = pa.struct([(name, arrow_type) for name, _, arrow_type in _FIELDS])
_SPARK_TYPE: Final = ", ".join(f"{name} {spark_type}" for name, spark_type, _ in _FIELDS)


def register(spark: SparkSession) -> None:
    """Register ``load_event`` with the session.

    Its arguments are ``event_id, room_id, json, internal_metadata, format_version, room_version``.
    It returns a struct with the fields of :class:`LoadedEvent`.
    """
    # PySpark's stubs require the function type, which arrow_udf infers from the annotations.
    function = arrow_udf(_load_events, _SPARK_TYPE)  # type: ignore[call-overload]
    spark.udf.register("load_event", function)


def _load_events(
    event_id: pa.Array,
    room_id: pa.Array,
    json: pa.Array,
    internal_metadata: pa.Array,
    format_version: pa.Array,
    room_version: pa.Array,
) -> pa.Array:
    columns = (event_id, room_id, json, internal_metadata, format_version, room_version)
    events = list(map(load_stored_event.load_event, *(column.to_pylist() for column in columns)))
    values = zip(*events, strict=True) if events else ([] for _ in _TYPE)
    arrays = [pa.array(column, field.type) for column, field in zip(values, _TYPE, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(_TYPE))
