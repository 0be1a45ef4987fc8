"""The function ``load_event`` of Spark's SQL: :func:`event_loader.load` over Arrow columns."""

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from synapse_lakehouse.events import event_hashes, event_loader, event_schema, redaction, synapse_json
from synapse_lakehouse.events.event_loader import LoadedEvent

RULES_FINGERPRINT: Final = hashlib.sha256(
    b"".join(
        Path(str(module.__file__)).read_bytes()
        for module in (event_loader, event_schema, synapse_json, event_hashes, redaction)
    )
).hexdigest()[:12]
"""Version of the rules: rows that other rules made are made again."""

_FLAGS: Final = frozenset(name for name, kind in LoadedEvent.__annotations__.items() if kind is bool)
_TYPE: Final = pa.struct([(name, pa.bool_() if name in _FLAGS else pa.string()) for name in LoadedEvent._fields])
_SPARK_TYPE: Final = ", ".join(f"{name} {'boolean' if name in _FLAGS else 'string'}" for name in LoadedEvent._fields)


def register(spark: SparkSession) -> None:
    """Let the session's SQL call ``load_event``.

    It takes ``event_id, room_id, json, internal_metadata, format_version, room_version`` and returns a struct with the
    fields of :class:`LoadedEvent`.
    """
    # The type hints know no call without the kind of function, which follows from the annotations.
    function = arrow_udf(_loaded, _SPARK_TYPE)  # type: ignore[call-overload]
    spark.udf.register("load_event", function)


def _loaded(
    event_id: pa.Array,
    room_id: pa.Array,
    json: pa.Array,
    internal_metadata: pa.Array,
    format_version: pa.Array,
    room_version: pa.Array,
) -> pa.Array:
    columns = (event_id, room_id, json, internal_metadata, format_version, room_version)
    events = list(map(event_loader.load_event, *(column.to_pylist() for column in columns)))
    values = zip(*events, strict=True) if events else ([] for _ in _TYPE)
    arrays = [pa.array(column, field.type) for column, field in zip(values, _TYPE, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(_TYPE))
