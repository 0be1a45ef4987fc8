"""Rows of each stream as the wire carries them, and the columns they are made of.

Shapes are those of Synapse's row classes (``synapse.replication.tcp.streams``), which changed with its releases. A
field that the catalogue does not list is withheld: null stands in its place.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Release = tuple[int, int]
"""Synapse's release, such as ``(1, 40)``."""

OLDEST_RELEASE: Final[Release] = (1, 0)


@dataclass(frozen=True)
class Constant:
    """The same in every row."""

    value: str | bool | None


@dataclass(frozen=True)
class IsSet:
    """Whether a column is not NULL."""

    column: str


@dataclass(frozen=True)
class Json:
    """A column of JSON text, parsed."""

    column: str


Field = str | Constant | IsSet | Json
"""A column's name, with its table's where that is joined by ``event_id``; or something made from one."""


@dataclass(frozen=True)
class During:
    """A field that only rows of some releases have: from ``since`` on, and before ``until``."""

    field: Field
    since: Release = OLDEST_RELEASE
    until: Release | None = None

    def is_in(self, release: Release | None) -> bool:
        """Whether rows of ``release`` have it; None is the newest."""
        if release is None:
            return self.until is None
        return self.since <= release and (self.until is None or release < self.until)


WITHHELD: Final = Constant(None)


@dataclass(frozen=True)
class Shape:
    """How each row of ``table`` is sent: its fields, in a list after their ``tag`` if there is one.

    ``is_announced``: Synapse announces every row; else a row of another table, if that is still there, which is served.
    ``is_distinct``: of rows of one token that are equal as they are sent, one is sent.
    """

    table: str
    fields: tuple[Field, ...]
    tag: str | None = None
    is_announced: bool = True
    is_distinct: bool = False


_OfRelease = Callable[[Release | None], Shape]


def _shape(
    table: str,
    fields: Sequence[Field | During],
    tag: str | None = None,
    *,
    is_announced: bool = True,
    is_distinct: bool = False,
) -> _OfRelease:
    """A shape as each release has it."""

    def of(release: Release | None) -> Shape:
        placed = [field if isinstance(field, During) else During(field) for field in fields]
        present = tuple(field.field for field in placed if field.is_in(release))
        return Shape(table, present, tag, is_announced, is_distinct)

    return of


_EVENT: Final[tuple[Field, ...]] = (
    "event_id", "events.room_id", "events.type", "state_events.state_key", "redactions.redacts",
    "event_relations.relates_to_id",
)  # fmt: skip
_NEW_EVENT: Final[tuple[Field | During, ...]] = (
    *_EVENT, During("room_memberships.membership", since=(1, 23)), During(IsSet("rejections.reason"), since=(1, 23)),
    During("events.outlier", since=(1, 64)),
)  # fmt: skip
_NO_ROOM: Final = Constant(None)
_CONTENT: Final = During(WITHHELD, until=(1, 7))
_NO, _YES = Constant(value=False), Constant(value=True)


def _device_list(user: Field, *, is_signature: Field, is_outbound: Field) -> tuple[Field | During, ...]:
    return (
        user, During(WITHHELD, until=(1, 13)), During(is_signature, since=(1, 76)), During(is_outbound, since=(1, 110)),
    )  # fmt: skip


_DECLARED: Final[dict[str, tuple[_OfRelease, ...]]] = {
    "events": (
        _shape("events", _NEW_EVENT, tag="ev"),
        _shape("current_state_delta_stream", ("room_id", "type", "state_key", "event_id"), tag="state"),
        _shape("ex_outlier_stream", _NEW_EVENT, tag="ev"),
    ),
    "backfill": (_shape("events", _EVENT), _shape("ex_outlier_stream", _EVENT)),
    "presence": (
        _shape(
            "presence_stream",
            (
                "user_id", "state", "last_active_ts", "last_federation_update_ts", "last_user_sync_ts", WITHHELD,
                "currently_active",
            ),
        ),
    ),
    "receipts": (
        _shape(
            "receipts_linearized",
            (
                "room_id", "receipt_type", "user_id", "event_id", During("thread_id", since=(1, 69)), Json("data"),
            ),
        ),
    ),
    "push_rules": (_shape("push_rules_stream", ("user_id",)),),
    "pushers": (
        _shape("pushers", ("user_name", "app_id", WITHHELD, _NO)),
        _shape("deleted_pushers", ("user_id", "app_id", WITHHELD, _YES)),
    ),
    "caches": (
        _shape("cache_invalidation_stream_by_instance", ("cache_func", "keys", "invalidation_ts")),
    ),
    "device_lists": (
        _shape("device_lists_stream", _device_list("user_id", is_signature=_NO, is_outbound=_NO)),
        # A device's former row in device_lists_stream goes when it changes again, before it was announced or after.
        _shape(
            "device_lists_changes_in_room",
            _device_list("user_id", is_signature=_NO, is_outbound=_NO),
            is_announced=False,
        ),
        _shape("user_signature_stream", _device_list(WITHHELD, is_signature=_YES, is_outbound=_NO)),
        _shape(
            "device_lists_outbound_pokes",
            _device_list(WITHHELD, is_signature=_NO, is_outbound=_YES),
            is_distinct=True,
        ),
    ),
    "to_device": (
        _shape("device_inbox", (WITHHELD,), is_distinct=True),
        _shape("device_federation_outbox", (WITHHELD,), is_distinct=True),
    ),
    "account_data": (
        _shape("account_data", ("user_id", _NO_ROOM, "account_data_type", _CONTENT)),
        _shape("room_account_data", ("user_id", "room_id", "account_data_type", _CONTENT)),
        _shape("room_tags_revisions", ("user_id", "room_id", Constant("m.tag"), _CONTENT)),
    ),
    "thread_subscriptions": (_shape("thread_subscriptions", ("user_id", "room_id", "event_id")),),
    "sticky_events": (_shape("sticky_events", ("room_id", "event_id")),),
    "profile_updates": (_shape("profile_updates", ("user_id", "action", WITHHELD)),),
    "quarantined_media": (_shape("quarantined_media_changes", ("origin", "media_id", "quarantined")),),
    "un_partial_stated_room": (_shape("un_partial_stated_room_stream", ("room_id",)),),
    "un_partial_stated_event": (_shape("un_partial_stated_event_stream", ("event_id", "rejection_status_changed")),),
}  # fmt: skip


_SINCE: Final[Mapping[str, Release]] = {
    "un_partial_stated_room": (1, 74),
    "un_partial_stated_event": (1, 75),
    "thread_subscriptions": (1, 135),
    "sticky_events": (1, 148),
    "quarantined_media": (1, 152),
    "profile_updates": (1, 159),
}
"""The first release of streams that came after 1.0. Clients of earlier releases log an error at each of their rows."""


def parse_release(text: str) -> Release | None:
    """The release that ``text`` names, such as ``1.40`` or ``1.40.2``; None if it names none from 1.0 on."""
    match = re.fullmatch(r"v?([1-9][0-9]{0,3})\.([0-9]{1,4})(?:\.[0-9]{1,4})?", text)
    return (int(match[1]), int(match[2])) if match else None


def shapes_of(release: Release | None = None) -> Mapping[str, tuple[Shape, ...]]:
    """Shapes by stream of the streams that ``release`` of Synapse has, by default the newest."""
    return {
        stream: tuple(of(release) for of in shapes)
        for stream, shapes in _DECLARED.items()
        if release is None or release >= _SINCE.get(stream, OLDEST_RELEASE)
    }


SHAPES: Final = shapes_of()
"""Shapes of the newest release."""
