"""Schemas of each stream's rows: their fields, and the table and columns that the fields come from.

The schemas follow Synapse's row classes (``synapse.replication.tcp.streams``), which differ between releases. A field
that the catalogue does not list is withheld: its value is null.
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
    """A field with the same value in every row."""

    value: str | bool | None


@dataclass(frozen=True)
class IsNotNull:
    """Whether a column is not NULL."""

    column: str


@dataclass(frozen=True)
class Json:
    """A column of JSON text, sent as its parsed value."""

    column: str


Field = str | Constant | IsNotNull | Json
"""A column's name, a value derived from a column, or a constant. A column of another table, joined by ``event_id``, has
the table's name as prefix."""


@dataclass(frozen=True)
class Versioned:
    """A field that rows have in some releases only: from ``since`` on, and before ``until``."""

    field: Field
    since: Release = OLDEST_RELEASE
    until: Release | None = None

    def is_in(self, release: Release | None) -> bool:
        """Return whether rows of ``release`` have the field; None is the newest release."""
        if release is None:
            return self.until is None
        return self.since <= release and (self.until is None or release < self.until)


WITHHELD: Final = Constant(None)


@dataclass(frozen=True)
class RowSchema:
    """The schema of the rows of ``table``. A row is sent as the list of its fields; with ``tag``, as ``[tag, fields]``.

    ``is_announced``: whether Synapse announces every row of the table. If not, Synapse announces rows of another table
    instead, and the replication server does not send rows of this table.
    ``is_distinct``: whether equal rows of one token are sent only once.
    """

    table: str
    fields: tuple[Field, ...]
    tag: str | None = None
    is_announced: bool = True
    is_distinct: bool = False


_SchemaOfRelease = Callable[[Release | None], RowSchema]


def _declare(
    table: str,
    fields: Sequence[Field | Versioned],
    tag: str | None = None,
    *,
    is_announced: bool = True,
    is_distinct: bool = False,
) -> _SchemaOfRelease:
    """Return a function that returns the schema of a release."""

    def schema_in(release: Release | None) -> RowSchema:
        versioned = [field if isinstance(field, Versioned) else Versioned(field) for field in fields]
        present = tuple(field.field for field in versioned if field.is_in(release))
        return RowSchema(table, present, tag, is_announced, is_distinct)

    return schema_in


_EVENT: Final[tuple[Field, ...]] = (
    "event_id", "events.room_id", "events.type", "state_events.state_key", "redactions.redacts",
    "event_relations.relates_to_id",
)  # fmt: skip
_NEW_EVENT: Final[tuple[Field | Versioned, ...]] = (
    *_EVENT, Versioned("room_memberships.membership", since=(1, 23)),
    Versioned(IsNotNull("rejections.reason"), since=(1, 23)), Versioned("events.outlier", since=(1, 64)),
)  # fmt: skip
_NO_ROOM: Final = Constant(None)
_CONTENT: Final = Versioned(WITHHELD, until=(1, 7))
_NO, _YES = Constant(value=False), Constant(value=True)


def _device_list(user: Field, *, is_signature: Field, is_outbound: Field) -> tuple[Field | Versioned, ...]:
    return (
        user, Versioned(WITHHELD, until=(1, 13)), Versioned(is_signature, since=(1, 76)),
        Versioned(is_outbound, since=(1, 110)),
    )  # fmt: skip


_DECLARED: Final[dict[str, tuple[_SchemaOfRelease, ...]]] = {
    "events": (
        _declare("events", _NEW_EVENT, tag="ev"),
        _declare("current_state_delta_stream", ("room_id", "type", "state_key", "event_id"), tag="state"),
        _declare("ex_outlier_stream", _NEW_EVENT, tag="ev"),
    ),
    "backfill": (_declare("events", _EVENT), _declare("ex_outlier_stream", _EVENT)),
    "presence": (
        _declare(
            "presence_stream",
            (
                "user_id", "state", "last_active_ts", "last_federation_update_ts", "last_user_sync_ts", WITHHELD,
                "currently_active",
            ),
        ),
    ),
    "receipts": (
        _declare(
            "receipts_linearized",
            (
                "room_id", "receipt_type", "user_id", "event_id", Versioned("thread_id", since=(1, 69)), Json("data"),
            ),
        ),
    ),
    "push_rules": (_declare("push_rules_stream", ("user_id",)),),
    "pushers": (
        _declare("pushers", ("user_name", "app_id", WITHHELD, _NO)),
        _declare("deleted_pushers", ("user_id", "app_id", WITHHELD, _YES)),
    ),
    "caches": (
        _declare("cache_invalidation_stream_by_instance", ("cache_func", "keys", "invalidation_ts")),
    ),
    "device_lists": (
        _declare("device_lists_stream", _device_list("user_id", is_signature=_NO, is_outbound=_NO)),
        # Synapse deletes a device's previous row of device_lists_stream when the device changes again, even if the
        # previous row was not announced yet.
        _declare(
            "device_lists_changes_in_room",
            _device_list("user_id", is_signature=_NO, is_outbound=_NO),
            is_announced=False,
        ),
        _declare("user_signature_stream", _device_list(WITHHELD, is_signature=_YES, is_outbound=_NO)),
        _declare(
            "device_lists_outbound_pokes",
            _device_list(WITHHELD, is_signature=_NO, is_outbound=_YES),
            is_distinct=True,
        ),
    ),
    "to_device": (
        _declare("device_inbox", (WITHHELD,), is_distinct=True),
        _declare("device_federation_outbox", (WITHHELD,), is_distinct=True),
    ),
    "account_data": (
        _declare("account_data", ("user_id", _NO_ROOM, "account_data_type", _CONTENT)),
        _declare("room_account_data", ("user_id", "room_id", "account_data_type", _CONTENT)),
        _declare("room_tags_revisions", ("user_id", "room_id", Constant("m.tag"), _CONTENT)),
    ),
    "thread_subscriptions": (_declare("thread_subscriptions", ("user_id", "room_id", "event_id")),),
    "sticky_events": (_declare("sticky_events", ("room_id", "event_id")),),
    "profile_updates": (_declare("profile_updates", ("user_id", "action", WITHHELD)),),
    "quarantined_media": (_declare("quarantined_media_changes", ("origin", "media_id", "quarantined")),),
    "un_partial_stated_room": (_declare("un_partial_stated_room_stream", ("room_id",)),),
    "un_partial_stated_event": (_declare("un_partial_stated_event_stream", ("event_id", "rejection_status_changed")),),
}  # fmt: skip


_SINCE: Final[Mapping[str, Release]] = {
    "un_partial_stated_room": (1, 74),
    "un_partial_stated_event": (1, 75),
    "thread_subscriptions": (1, 135),
    "sticky_events": (1, 148),
    "quarantined_media": (1, 152),
    "profile_updates": (1, 159),
}
"""First release of each stream that was added after 1.0. Clients of earlier releases log an error for each row."""


def parse_release(text: str) -> Release | None:
    """Parse a release such as ``1.40`` or ``1.40.2``; None if ``text`` is not a release from 1.0 on."""
    match = re.fullmatch(r"v?([1-9][0-9]{0,3})\.([0-9]{1,4})(?:\.[0-9]{1,4})?", text)
    return (int(match[1]), int(match[2])) if match else None


def row_schemas_of(release: Release | None = None) -> Mapping[str, tuple[RowSchema, ...]]:
    """Return the row schemas of each stream in a release of Synapse, by default the newest."""
    return {
        stream: tuple(schema_in(release) for schema_in in schemas)
        for stream, schemas in _DECLARED.items()
        if release is None or release >= _SINCE.get(stream, OLDEST_RELEASE)
    }


ROW_SCHEMAS: Final = row_schemas_of()
"""Row schemas of the newest release."""
