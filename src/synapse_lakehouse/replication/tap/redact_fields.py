"""Redact rows before they are recorded. Only the fields in the catalogue and hashes of cache keys remain."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from synapse_lakehouse.catalogue import Catalogue, DayProjection, JsonKeysProjection
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, Constant, Field, IsNotNull, Json, RowSchema

CACHES: Final = "caches"
WITHHELD_KEY: Final = "withheld"

FieldFilter = Callable[[Any], Any]
"""A function that returns the part of a field's value that the catalogue lists."""


class RowRedactor:
    """Reduces rows to the fields that ``catalogue`` lists."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._filters = {
            (stream, tag): _field_filters(catalogue, [schema for schema in schemas if schema.tag == tag])
            for stream, schemas in ROW_SCHEMAS.items()
            for tag in {schema.tag for schema in schemas}
        }

    def redact(self, stream: str, row: Any) -> Any:
        """Return the listed fields of ``row``; None if the stream has no table or the row matches no schema."""
        if not isinstance(row, list):
            return None
        if stream == CACHES:
            return _redact_invalidation(row)
        match row:
            case [str(tag), list(fields)] if filters := self._filters.get((stream, tag)):
                return [tag, _apply_filters(filters, fields)]
            case ["state-all", [str(room)]] if stream == "events":
                return ["state-all", [room]]
        filters = self._filters.get((stream, None))
        return None if filters is None else _apply_filters(filters, row)


def _redact_invalidation(row: list[Any]) -> list[Any] | None:
    """Return the cache's name, the hash of the key (None: the whole cache is invalidated), and the time.

    ``WITHHELD_KEY`` replaces the hash of a key that the role cannot read in the database.
    """
    match row:
        case [str(name), [None, *others], int() | None as at] if set(others) <= {None}:
            return [name, WITHHELD_KEY, at]
        case [str(name), keys, int() | None as at]:
            return [name, None if keys is None else hash_json(keys), at]
    return None


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def _apply_filters(filters: Sequence[FieldFilter | None], fields: list[Any]) -> list[Any]:
    return [filter_(value) if filter_ else None for filter_, value in zip(filters, fields, strict=False)]


def _field_filters(catalogue: Catalogue, schemas: Sequence[RowSchema]) -> tuple[FieldFilter | None, ...]:
    """Return the filter of each field by its index in the row: the first of ``schemas`` that does not withhold it.

    If all schemas withhold the field, its filter is None.
    """
    filters_by_schema = [[field_filter(catalogue, schema, field) for field in schema.fields] for schema in schemas]
    return tuple(next(filter(None, filters), None) for filters in zip(*filters_by_schema, strict=True))


def field_filter(catalogue: Catalogue, schema: RowSchema, field: Field) -> FieldFilter | None:
    """Return the function that applies the field's projection in the catalogue; None if the field is withheld."""
    match field:
        case Constant(None):
            return None
        case Constant():
            return _keep_value
        case IsNotNull(column):
            name = column
        case Json(column):
            name = column
        case str(name):
            pass
    owner, _, column = name.rpartition(".")
    match catalogue.table(owner or schema.table).column(column).projection:
        case None:
            return _keep_value
        case DayProjection():
            return lambda value: value - value % DayProjection.MILLISECONDS if isinstance(value, int) else None
        case JsonKeysProjection(keys=keys):
            return lambda value: {key: value[key] for key in keys if key in value} if isinstance(value, dict) else None
    return None


def _keep_value(value: Any) -> Any:
    return value
