"""Rows of each stream as the wire carries them, and the columns they are made of.

Shapes are Synapse's own. A field that the catalogue does not list is withheld: null stands in its place.
"""

from dataclasses import dataclass
from typing import Final


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

WITHHELD: Final = Constant(None)


@dataclass(frozen=True)
class Shape:
    """How each row of ``table`` is sent: its fields, in a list after their ``tag`` if there is one.

    ``is_announced``: Synapse announces every row; else only together with one of another table, if that is still there.
    """

    table: str
    fields: tuple[Field, ...]
    tag: str | None = None
    is_announced: bool = True


_EVENT: Final[tuple[Field, ...]] = (
    "event_id", "events.room_id", "events.type", "state_events.state_key", "redactions.redacts",
    "event_relations.relates_to_id",
)  # fmt: skip
_NEW_EVENT: Final = (*_EVENT, "room_memberships.membership", IsSet("rejections.reason"), "events.outlier")
_NO, _YES = Constant(value=False), Constant(value=True)

SHAPES: Final[dict[str, tuple[Shape, ...]]] = {
    "events": (
        Shape("events", _NEW_EVENT, tag="ev"),
        Shape("current_state_delta_stream", ("room_id", "type", "state_key", "event_id"), tag="state"),
        Shape("ex_outlier_stream", _NEW_EVENT, tag="ev"),
    ),
    "backfill": (Shape("events", _EVENT), Shape("ex_outlier_stream", _EVENT)),
    "presence": (
        Shape(
            "presence_stream",
            (
                "user_id", "state", "last_active_ts", "last_federation_update_ts", "last_user_sync_ts", WITHHELD,
                "currently_active",
            ),
        ),
    ),
    "receipts": (
        Shape("receipts_linearized", ("room_id", "receipt_type", "user_id", "event_id", "thread_id", Json("data"))),
    ),
    "push_rules": (Shape("push_rules_stream", ("user_id",)),),
    "pushers": (
        Shape("pushers", ("user_name", "app_id", WITHHELD, _NO)),
        Shape("deleted_pushers", ("user_id", "app_id", WITHHELD, _YES)),
    ),
    "caches": (Shape("cache_invalidation_stream_by_instance", (WITHHELD, WITHHELD, WITHHELD)),),
    "device_lists": (
        Shape("device_lists_stream", ("user_id", _NO, _NO)),
        # A device's former row in device_lists_stream goes when it changes again, before it was announced or after.
        Shape("device_lists_changes_in_room", ("user_id", _NO, _NO), is_announced=False),
        Shape("user_signature_stream", (WITHHELD, _YES, _NO)),
        Shape("device_lists_outbound_pokes", (WITHHELD, _NO, _YES)),
    ),
    "to_device": (Shape("device_inbox", (WITHHELD,)), Shape("device_federation_outbox", (WITHHELD,))),
    "account_data": (
        Shape("account_data", ("user_id", WITHHELD, "account_data_type")),
        Shape("room_account_data", ("user_id", "room_id", "account_data_type")),
        Shape("room_tags_revisions", ("user_id", "room_id", Constant("m.tag"))),
    ),
    "thread_subscriptions": (Shape("thread_subscriptions", ("user_id", "room_id", "event_id")),),
    "sticky_events": (Shape("sticky_events", ("room_id", "event_id")),),
    "profile_updates": (Shape("profile_updates", ("user_id", "action")),),
    "quarantined_media": (Shape("quarantined_media_changes", ("origin", "media_id", "quarantined")),),
    "un_partial_stated_room": (Shape("un_partial_stated_room_stream", ("room_id",)),),
    "un_partial_stated_event": (Shape("un_partial_stated_event_stream", ("event_id", "rejection_status_changed")),),
}  # fmt: skip
