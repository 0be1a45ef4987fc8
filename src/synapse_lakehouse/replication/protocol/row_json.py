"""JSON of replication rows: the strict decoder and encoder, and the conversion of database rows to sendable rows."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.replication.protocol.dialect import GrammarError
from synapse_lakehouse.replication.protocol.framing import MAX_LINE_BYTES
from synapse_lakehouse.replication.protocol.row_schemas import Json, RowSchema
from synapse_lakehouse.replication.tap.redact_fields import FieldFilter

MAX_NESTING: Final = 128
"""Maximum nesting depth of a row. It is the limit of Rust's serde_json, which Synapse uses. The limit of Python's
parser depends on the stack of the caller."""

MAX_ROW_BYTES: Final = MAX_LINE_BYTES - (1 << 12)
"""Maximum bytes of a row's JSON, so that its line fits in ``MAX_LINE_BYTES``."""

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_MAX_ENCODED_BYTES: Final = 6
"""Maximum number of bytes that the encoder writes for a byte of its input: ``\\u0000``."""


class UnsendableRowError(LakehouseError):
    """A row that cannot be a line of the protocol. The message and ``column`` contain no data of the row.

    :ivar column: the column at fault; None if it is unknown.
    """

    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.column = column


def _refuse_constant(constant: str) -> NoReturn:
    raise GrammarError(f"{constant} is not JSON")


def _parse_finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise GrammarError("a number is too large")
    return value


DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_finite)
"""This decoder refuses NaN, infinities and numbers that do not fit in a float, as Synapse's encoder does."""

ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode_row(schema: RowSchema, data: bytes, filters: Mapping[int, FieldFilter | None]) -> Any:
    """Decode a row from ``data``, the JSON list of its fields. Columns of JSON text are strings in this list.

    :param filters: by the index of each column of JSON text, the function that keeps only the parts that the catalogue
        lists.
    :raises UnsendableRowError: if the row is too long for a line, or its text or JSON is invalid.
    """
    try:
        fields: list[Any] = DECODER.decode(data.decode())
    except UnicodeDecodeError:
        # Columns of JSON text are still strings, so the field with invalid bytes can be found.
        broken_fields = json.loads(data.decode(errors="surrogateescape"))
        broken = next((number for number, field in enumerate(broken_fields) if _has_surrogate(field)), None)
        raise UnsendableRowError(_column_name(schema, broken), "text that is not UTF-8") from None
    for number, field in enumerate(schema.fields):
        if isinstance(field, Json) and fields[number] is not None:
            fields[number] = _decode_column(field.column, fields[number], filters[number])
    row = fields if schema.tag is None else [schema.tag, fields]
    if len(data) * _MAX_ENCODED_BYTES > MAX_ROW_BYTES and len(ENCODER.encode(row)) > MAX_ROW_BYTES:
        longest = max(range(len(fields)), key=lambda number: len(ENCODER.encode(fields[number])))
        raise UnsendableRowError(_column_name(schema, longest), f"longer than {MAX_ROW_BYTES:,} bytes")
    return row


def _decode_column(column: str, text: str, field_filter: FieldFilter | None) -> Any:
    try:
        value = DECODER.decode(text)
        value = field_filter(value) if field_filter else None
        if any(level > MAX_NESTING for level in _nesting_levels(value)):
            raise RecursionError
    except GrammarError as error:
        reason = str(error)
    except RecursionError:
        reason = f"JSON that is nested more than {MAX_NESTING} levels deep"
    except ValueError:
        # Python also raises ValueError for an integer with too many digits.
        reason = "not JSON"
    else:
        return _replace_lone_surrogates(value) if "\\u" in text else value
    raise UnsendableRowError(column, reason)


def _replace_lone_surrogates(value: Any) -> Any:
    """Replace halves of surrogate pairs by U+FFFD, because UTF-8 cannot encode them."""
    return json.loads(_LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False)))


def _nesting_levels(value: Any) -> Iterator[int]:
    """Yield the level of each list and object in ``value``; ``value`` itself has level 1."""
    pending = [(value, 1)]
    while pending:
        container, level = pending.pop()
        if isinstance(container, dict | list):
            yield level
            items = container.values() if isinstance(container, dict) else container
            pending.extend((item, level + 1) for item in items if isinstance(item, dict | list))


def _has_surrogate(field: Any) -> bool:
    return isinstance(field, str) and any("\ud800" <= character <= "\udfff" for character in field)


def _column_name(schema: RowSchema, number: int | None) -> str | None:
    if number is None:
        return None
    field = schema.fields[number]
    return field if isinstance(field, str) else getattr(field, "column", None)
