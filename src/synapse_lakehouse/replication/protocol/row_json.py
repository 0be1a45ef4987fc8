"""JSON of replication rows: the strict decoder and encoder, and rows of the database as a line can carry them."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.replication.protocol.dialect import GrammarError
from synapse_lakehouse.replication.protocol.framing import LONGEST
from synapse_lakehouse.replication.protocol.row_schemas import Json, Shape
from synapse_lakehouse.replication.tap.redact_fields import Keep

MOST_LEVELS: Final = 128
"""Levels of nesting that a row may have. Parsers stop at a depth of their own: Rust's serde_json, which Synapse uses,
at this one, Python's where its stack ends, which differs from caller to caller."""

MOST_BYTES: Final = LONGEST - (1 << 12)
"""Bytes that the JSON of a row may have, so that its line fits in ``LONGEST``."""

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_MOST_BYTES_OF_A_CHARACTER: Final = 6
"""``\\u0000`` is the longest form that the encoder gives to a byte of its input."""


class UnsendableRowError(LakehouseError):
    """A row that no line can carry. The message and ``column`` contain nothing of the row.

    :ivar column: the column at fault; None if it is not known.
    """

    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.column = column


def _refuse(constant: str) -> NoReturn:
    raise GrammarError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise GrammarError("a number is too large")
    return value


DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""Refuses NaN, infinities and numbers that a float cannot hold: Synapse's encoder refuses them, too."""

ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode_row(shape: Shape, data: bytes, projections: Mapping[int, Keep | None]) -> Any:
    """The row whose fields are the JSON list ``data``, in which columns of JSON text are strings.

    :param projections: for the place of each column of JSON text, what the catalogue lists of its value.
    :raises UnsendableRowError: when a line cannot carry it.
    """
    try:
        fields: list[Any] = DECODER.decode(data.decode())
    except UnicodeDecodeError:
        # Every field is a string here, so that the one with invalid bytes can be found.
        broken = json.loads(data.decode(errors="surrogateescape"))
        at = next((number for number, field in enumerate(broken) if _has_surrogate(field)), None)
        raise UnsendableRowError(_name(shape, at), "text that is not UTF-8") from None
    for number, field in enumerate(shape.fields):
        if isinstance(field, Json) and fields[number] is not None:
            fields[number] = _decode_column(field.column, fields[number], projections[number])
    row = fields if shape.tag is None else [shape.tag, fields]
    if len(data) * _MOST_BYTES_OF_A_CHARACTER > MOST_BYTES and len(ENCODER.encode(row)) > MOST_BYTES:
        longest = max(range(len(fields)), key=lambda number: len(ENCODER.encode(fields[number])))
        raise UnsendableRowError(_name(shape, longest), f"longer than {MOST_BYTES:,} bytes")
    return row


def _decode_column(column: str, text: str, projection: Keep | None) -> Any:
    try:
        value = DECODER.decode(text)
        value = projection(value) if projection else None
        if any(level > MOST_LEVELS for level in _levels(value)):
            raise RecursionError
    except GrammarError as error:
        reason = str(error)
    except RecursionError:
        reason = f"JSON that is nested more than {MOST_LEVELS} levels deep"
    except ValueError:
        # Also an integer of more digits than Python converts.
        reason = "not JSON"
    else:
        return _without_lone_surrogates(value) if "\\u" in text else value
    raise UnsendableRowError(column, reason)


def _without_lone_surrogates(value: Any) -> Any:
    """``value`` with U+FFFD in place of halves of surrogate pairs, which have no form in UTF-8."""
    return json.loads(_LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False)))


def _levels(value: Any) -> Iterator[int]:
    """The depth of each list and object in ``value``, itself on level 1."""
    waiting = [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        if isinstance(one, dict | list):
            yield level
            inner = one.values() if isinstance(one, dict) else one
            waiting.extend((item, level + 1) for item in inner if isinstance(item, dict | list))


def _has_surrogate(field: Any) -> bool:
    return isinstance(field, str) and any("\ud800" <= character <= "\udfff" for character in field)


def _name(shape: Shape, number: int | None) -> str | None:
    if number is None:
        return None
    field = shape.fields[number]
    return field if isinstance(field, str) else getattr(field, "column", None)
