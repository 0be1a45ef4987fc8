"""What a row that was announced was about, as far as that explains where it went."""

import json
from typing import Any, Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.replication.protocol.row_schemas import SHAPES, Shape

_ABOUT: Final = {
    "event_id": ("event_id",),
    "room_id": ("room_id",),
    "user_id": ("user_id", "user_name"),
    "state_key": ("state_key",),
}
"""What is asked of a row, and the names of columns that tell it."""


def about(catalogue: Catalogue, stream: str, row: str) -> dict[str, Any] | None:
    """``table_name`` that a landed row is of, and the keys of ``_ABOUT``; None if it is of no known form."""
    found = json.loads(row)
    copied = {table.name for table in catalogue.copied_tables()}
    for shape in SHAPES.get(stream, ()):
        if shape.table in copied and (fields := _fields(shape, found)) is not None:
            told = {name: next((fields[one] for one in names if one in fields), None) for name, names in _ABOUT.items()}
            return {"table_name": shape.table} | told
    return None


def _fields(shape: Shape, row: Any) -> dict[str, Any] | None:
    """The fields of ``row`` by column; None if it is not of this shape."""
    match row:
        case [str(tag), list(values)] if shape.tag == tag:
            pass
        case list(values) if shape.tag is None:
            pass
        case _:
            return None
    names = [field.rpartition(".")[2] if isinstance(field, str) else None for field in shape.fields]
    return {name: value for name, value in zip(names, values, strict=False) if name}
