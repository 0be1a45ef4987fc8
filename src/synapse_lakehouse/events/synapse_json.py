"""Parse JSON like Synapse (with Python's ``json``), and find values that Synapse refuses or cannot encode. Pure."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from synapse_lakehouse.errors import LakehouseError

_MOST_LEVELS: Final = 127
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def parse_event(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the event (None if the text is not a JSON object), and a flaw: None, ``not_finite`` or ``not_canonical``.

    ``not_finite``: the text contains NaN or Infinity. ``not_canonical``: a number or the nesting is too large.
    """
    flaw = None
    try:
        try:
            event = _STRICT.decode(text)
        except _FlawError:
            event = json.loads(text)
            flaw = "not_finite" if _has_constant(text) else "not_canonical"
    except json.JSONDecodeError:
        return None, None
    # The text has an integer of more than 4,300 digits, or thousands of levels.
    except (ValueError, RecursionError):
        return None, "not_canonical"
    return (event, flaw) if isinstance(event, dict) else (None, None)


def parse_metadata(text: str) -> Any:
    """Return the value of ``internal_metadata``.

    :raises ValueError: if Synapse cannot parse it.
    """
    try:
        return _METADATA.decode(text)
    except RecursionError:
        raise ValueError("too many levels") from None


def has_unpaired_surrogate(event: Mapping[str, Any], text: str) -> bool:
    """Return whether a string contains an unpaired surrogate, which has no UTF-8 encoding.

    :param text: the JSON text of ``event``.
    """
    if not _SURROGATE.search(text):
        return False
    try:
        json.dumps(event, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except RecursionError:
        # The event could be parsed, but is nested too deep to be encoded.
        return False
    return False


def is_nested_too_deep(event: Mapping[str, Any], text: str) -> bool:
    """Return whether ``event`` is nested 128 or more levels deep. Synapse's event class refuses such events."""
    if text.count("{") + text.count("[") <= _MOST_LEVELS:
        return False
    level: list[Any] = [event]
    for _ in range(_MOST_LEVELS):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _values(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def _has_constant(text: str) -> bool:
    constants: list[str] = []
    json.loads(text, parse_constant=constants.append)
    return bool(constants)


class _FlawError(LakehouseError, ValueError):
    """The text contains NaN, Infinity, or a number that is too large for a float."""


def _refuse_constant(name: str) -> NoReturn:
    raise _FlawError(name)


def _require_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _FlawError(digits)
    return number


_STRICT: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_require_finite)
_METADATA: Final = json.JSONDecoder(parse_constant=_refuse_constant)
