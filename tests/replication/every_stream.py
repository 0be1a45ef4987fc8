"""Fill every table behind a stream, and hide all rows by positions at the beginning."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.replication.database import CATALOGUE, Database

_USERS: Final = ("@alice:synapse.example", "@bob:synapse.example", "@carol:synapse.example")

_WRITERS: Final = {
    "un_partial_stated_room": "master", "un_partial_stated_event": "master", "quarantined_media": "master",
    "pushers": "master", "events": "persister1", "sticky_events": "persister1", "profile_updates": "persister1",
}  # fmt: skip
"""The process that writes the rows of :func:`fill`, by stream; worker1 writes the other streams."""


def fill(database: Database) -> None:
    """Insert rows of every stream that is rare in the sample, several with one ID where Synapse does so."""
    (room, event, order), (_, other, _) = database.execute(
        "select room_id, event_id, stream_ordering from events where stream_ordering > 0"
        " and event_id not in (select event_id from sticky_events)"
        " and event_id not in (select event_id from un_partial_stated_event_stream)"
        " and room_id not in (select room_id from un_partial_stated_room_stream) order by stream_ordering limit 2"
    )
    alice, bob, carol = _USERS
    insert = partial(_insert, database)
    # In the sample this writer has written events only, so it would limit the stream's bound.
    (end,) = database.execute("select min(stream_ordering) from events")[0]
    database.set_position("backfill", "persister1", end)

    for rejected, changed in ((event, False), (other, True)):
        insert("un_partial_stated_event", "un_partial_stated_event_stream", "event_id, rejection_status_changed",
               (rejected, changed))  # fmt: skip
        insert("quarantined_media", "quarantined_media_changes", "origin, media_id, quarantined",
               ("elsewhere.example" if changed else None, "media", changed))  # fmt: skip
    # Synapse does not delete these rows when it purges their events.
    insert("events", "ex_outlier_stream", "event_id, state_group", ("$purged", 1))
    insert("un_partial_stated_room", "un_partial_stated_room_stream", "room_id", (room,))
    insert("thread_subscriptions", "thread_subscriptions", "room_id, event_id, user_id, subscribed, automatic",
           (room, event, alice, True, False))  # fmt: skip
    insert("sticky_events", "sticky_events", "event_id, room_id, event_stream_ordering, sender, expires_at",
           (event, room, order, alice, 1 << 41))  # fmt: skip
    for action, fields in (("update", '["displayname", "avatar_url"]'), ("joined_room", None)):
        insert("profile_updates", "profile_updates", "user_id, action, affected_fields, inserted_ts",
               (bob, action, fields, 1))  # fmt: skip
    insert("to_device", "device_inbox", "user_id, device_id, message_json",
           (alice, "A", "{}"), (alice, "B", "{}"), (bob, "A", "{}"))  # fmt: skip
    insert("to_device", "device_federation_outbox", "destination, queued_ts, messages_json",
           ("one.example", 1, "{}"), ("two.example", 1, "{}"))  # fmt: skip
    insert("device_lists", "device_lists_outbound_pokes", "destination, user_id, device_id, sent, ts",
           ("one.example", carol, "C", False, 1), ("two.example", carol, "C", False, 1))  # fmt: skip
    insert("device_lists", "user_signature_stream", "from_user_id, user_ids", (carol, "[]"))
    insert("device_lists", "device_lists_stream", "user_id, device_id", (carol, "C"))
    insert("account_data", "room_tags_revisions", "user_id, room_id", (carol, room))
    insert("pushers", "deleted_pushers", "app_id, pushkey, user_id", ("app", "secret", carol))
    for cache, keys in (
        ("get_user_by_id", [alice]), ("get_user_by_access_token", ["syt_secret"]), ("get_user_by_id", None),
        ("get_user_by_external_id", ["oidc", "secret"]), ("cs_cache_fake", [room, alice, bob]),
        ("dr_cache_fake", [room]), ("get_monthly_active_count", []), ("a_module.cache", ["secret", "secret"]),
    ):  # fmt: skip
        insert("caches", "cache_invalidation_stream_by_instance", "cache_func, keys, invalidation_ts", (cache, keys, 5))


def _insert(database: Database, stream: str, table: str, columns: str, *rows: tuple[object, ...]) -> None:
    """Insert rows with the next ID of the stream, and advance the writer's position."""
    token = database.execute("select nextval(%s)", CATALOGUE.stream(stream).sequence)[0][0]
    writer = _WRITERS.get(stream, "worker1")
    marks = ", ".join(["%s"] * (len(rows[0]) + 2))
    id_column = CATALOGUE.table(table).streams[stream]
    for row in rows:
        database.execute(
            f"insert into {table} ({id_column}, instance_name, {columns}) values ({marks})", token, writer, *row
        )
    if CATALOGUE.stream(stream).stream_positions:
        database.set_position(stream, writer, token)


@contextmanager
def positions_at_the_beginning(database: Database) -> Iterator[Callable[[], None]]:
    """Set all positions to the beginning, and yield a function that restores them."""
    positions = database.execute("select stream_name, instance_name, stream_id from stream_positions")
    ends = {
        stream.sequence: database.execute(f"select last_value from {stream.sequence}")[0][0]
        for stream in database.streams()
    }
    database.execute("; ".join(f"select setval('{sequence}', 1)" for sequence in ends))
    database.execute("update stream_positions set stream_id = sign(stream_id)")

    def restore() -> None:
        database.execute("; ".join(f"select setval('{sequence}', {end})" for sequence, end in ends.items()))
        for name, instance, position in positions:
            database.execute(
                "update stream_positions set stream_id = %s where stream_name = %s and instance_name = %s",
                position, name, instance,
            )  # fmt: skip

    try:
        yield restore
    finally:
        restore()
