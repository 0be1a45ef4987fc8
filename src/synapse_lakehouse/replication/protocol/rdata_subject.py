"""Read the subject of an announced row: table, event, room, user, state key. Subjects help to explain missing rows."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, RowSchema

_SUBJECT_COLUMNS: Final = {
    "event_id": ("event_id",),
    "room_id": ("room_id",),
    "user_id": ("user_id", "user_name"),
    "state_key": ("state_key",),
}
"""Parts of the subject, and the columns that contain them."""


def read_subject(catalogue: Catalogue, stream: str, row: str) -> dict[str, Any] | None:
    """Return ``table_name`` and the keys of ``_SUBJECT_COLUMNS`` of a recorded row; None if no schema matches."""
    decoded = json.loads(row)
    copied = {table.name for table in catalogue.copied_tables()}
    for schema in ROW_SCHEMAS.get(stream, ()):
        if schema.table in copied and (fields := _fields_by_column(schema, decoded)) is not None:
            subject = {
                part: next((fields[column] for column in columns if column in fields), None)
                for part, columns in _SUBJECT_COLUMNS.items()
            }
            return {"table_name": schema.table} | subject
    return None


def read_subjects(catalogue: Catalogue, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the subjects of recorded rows: a function for ``mapInArrow``. Rows that no schema matches are left out.

    ``batches`` have the columns stream, id, row and received_at. The columns of the result are stream, table_name, id,
    the keys of ``_SUBJECT_COLUMNS``, and received_at.
    """
    for batch in batches:
        subjects = [
            read_subject(catalogue, stream, row)
            for stream, row in zip(batch["stream"].to_pylist(), batch["row"].to_pylist(), strict=True)
        ]
        kept = batch.filter(pa.array([subject is not None for subject in subjects]))
        columns = {
            name: pa.array([subject[name] for subject in subjects if subject], pa.string())
            for name in ("table_name", *_SUBJECT_COLUMNS)
        }
        table_name = columns.pop("table_name")
        identified = {"stream": kept["stream"], "table_name": table_name, "id": kept["id"]}
        yield pa.record_batch(identified | columns | {"received_at": kept["received_at"]})


def _fields_by_column(schema: RowSchema, row: Any) -> dict[str, Any] | None:
    """Return the fields of ``row`` by column; None if the row does not match ``schema``."""
    match row:
        case [str(tag), list(values)] if schema.tag == tag:
            pass
        case list(values) if schema.tag is None:
            pass
        case _:
            return None
    names = [field.rpartition(".")[2] if isinstance(field, str) else None for field in schema.fields]
    return {name: value for name, value in zip(names, values, strict=False) if name}
