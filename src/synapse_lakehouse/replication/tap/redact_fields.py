"""What is kept of a row that was heard: the fields that the catalogue lists, and of cache keys a hash."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from synapse_lakehouse.catalogue import Catalogue, DayProjection, JsonKeysProjection
from synapse_lakehouse.replication.protocol.row_schemas import SHAPES, Constant, Field, IsSet, Json, Shape

CACHES: Final = "caches"
WITHHELD_KEY: Final = "withheld"

Keep = Callable[[Any], Any]


class Keeping:
    """What may be kept under ``catalogue``."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._fields = {
            (stream, tag): _fields(catalogue, [shape for shape in shapes if shape.tag == tag])
            for stream, shapes in SHAPES.items()
            for tag in {shape.tag for shape in shapes}
        }

    def of(self, stream: str, row: Any) -> Any:
        """``row`` as it may be stored; None where the stream has no table, or the row is not of a known form."""
        if not isinstance(row, list):
            return None
        if stream == CACHES:
            return _invalidation(row)
        match row:
            case [str(tag), list(fields)] if keep := self._fields.get((stream, tag)):
                return [tag, _applied(keep, fields)]
            case ["state-all", [str(room)]] if stream == "events":
                return ["state-all", [room]]
        keep = self._fields.get((stream, None))
        return None if keep is None else _applied(keep, row)


def _invalidation(row: list[Any]) -> list[Any] | None:
    """Name of the cache, hash of the key (None: the whole cache is forgotten), time.

    Of a key that was read from the database and is withheld there, ``WITHHELD_KEY`` in place of the hash.
    """
    match row:
        case [str(name), [None, *others], int() | None as at] if set(others) <= {None}:
            return [name, WITHHELD_KEY, at]
        case [str(name), keys, int() | None as at]:
            return [name, None if keys is None else hash_of(keys), at]
    return None


def hash_of(value: Any) -> str:
    """SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def _applied(keep: Sequence[Keep | None], fields: list[Any]) -> list[Any]:
    return [one(value) if one else None for one, value in zip(keep, fields, strict=False)]


def _fields(catalogue: Catalogue, shapes: Sequence[Shape]) -> tuple[Keep | None, ...]:
    """By place in the row, what becomes of the field; None: it is withheld. A place may differ from table to table."""
    places = zip(*(shape.fields for shape in shapes), strict=True)
    return tuple(
        next(filter(None, (keep_of(catalogue, shape, one) for shape, one in zip(shapes, place, strict=True))), None)
        for place in places
    )


def keep_of(catalogue: Catalogue, shape: Shape, field: Field) -> Keep | None:
    """The projection of ``field`` that the catalogue declares, for a value as Synapse has it; None: it is withheld."""
    match field:
        case Constant(None):
            return None
        case Constant():
            return _as_it_is
        case IsSet(column):
            name = column
        case Json(column):
            name = column
        case str(name):
            pass
    owner, _, column = name.rpartition(".")
    match catalogue.table(owner or shape.table).column(column).projection:
        case None:
            return _as_it_is
        case DayProjection():
            return lambda value: value - value % DayProjection.MILLISECONDS if isinstance(value, int) else None
        case JsonKeysProjection(keys=keys):
            return lambda value: {key: value[key] for key in keys if key in value} if isinstance(value, dict) else None
    return None


def _as_it_is(value: Any) -> Any:
    return value
