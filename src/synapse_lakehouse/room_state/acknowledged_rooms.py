"""The rooms of ``LAKEHOUSE_ACKNOWLEDGED_ROOMS``. Pure."""

from datetime import UTC, datetime


def parse_acknowledged_rooms(setting: str) -> list[dict[str, str | int]]:
    """Return the variable ``acknowledged_rooms`` of dbt.

    ``room``: the ID in hexadecimal, because it may contain any character. ``before``: changes of state groups that were
    found before this time, in milliseconds since 1970, are acknowledged; 0 for a room without a time.

    :param setting: rooms such as ``!a:example.org`` or ``!a:example.org@2026-11-30T14:00Z``.
    """
    return [_parse(word) for word in setting.split()]


def _parse(word: str) -> dict[str, str | int]:
    room, _, time = word.rpartition("@")
    try:
        before = datetime.fromisoformat(time)
    except ValueError:
        # The room's ID contains an @.
        return {"room": word.encode().hex(), "before": 0}
    before = before if before.tzinfo else before.replace(tzinfo=UTC)
    return {"room": room.encode().hex(), "before": int(before.timestamp() * 1000)}
