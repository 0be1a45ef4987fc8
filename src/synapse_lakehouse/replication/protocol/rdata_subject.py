"""Read the subject of an announced row: table, event, room, user and state key. It helps to explain a missing row."""

import json
from typing import Any, Final

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
