"""Parse ``LAKEHOUSE_ACKNOWLEDGED_ROOMS``."""

import re
from datetime import UTC, datetime
from typing import Final

# A room's ID may contain an @. So the text after an @ is a time only if it begins with a date.
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*")


def parse_acknowledged_rooms(setting: str) -> list[dict[str, str | int]]:
    """Return the variable ``acknowledged_rooms`` of dbt.

    ``room``: the ID in hexadecimal, because it may contain any character. ``before``: a time in milliseconds since
    1970. Changes of state groups that were found before this time are acknowledged; 0 if the setting has no time for
    the room.

    :param setting: rooms such as ``!a:example.org`` or ``!a:example.org@2026-11-30T14:00Z``.
    :raises ValueError: for a word that is not the ID of a room, or a time that does not exist.
    """
    return [_parse(word) for word in setting.split()]


def check_rooms(setting: str) -> str:
    """Return ``setting``.

    :raises ValueError: as :func:`parse_acknowledged_rooms`.
    """
    parse_acknowledged_rooms(setting)
    return setting


def _parse(word: str) -> dict[str, str | int]:
    if not word.startswith("!"):
        raise ValueError(f"{word!r} is not the ID of a room, such as !a:example.org")
    room, _, time = word.rpartition("@")
    if not _DATE.fullmatch(time):
        return {"room": word.encode().hex(), "before": 0}
    try:
        before = datetime.fromisoformat(time)
    except ValueError:
        raise ValueError(f"{time!r} is not a time, such as 2026-11-30T14:00Z") from None
    before = before if before.tzinfo else before.replace(tzinfo=UTC)
    return {"room": room.encode().hex(), "before": int(before.timestamp() * 1000)}
