"""The checks of ``gold.state_integrity``, which find faults in Synapse's database. Pure."""

from typing import Final

from synapse_lakehouse.room_state.integrity_check import INDEX_CAUSES, REBUILD_INDEX, Harm, IntegrityCheck
from synapse_lakehouse.room_state.row_reference_checks import REFERENCE_CHECKS
from synapse_lakehouse.room_state.state_group_checks import STATE_GROUP_CHECKS

INTEGRITY_CHECKS: Final = (
    IntegrityCheck(
        "state_reset",
        "pieces of current state that differ from their last recorded change",
        "current_state_events differs from the last row of current_state_delta_stream. The room's members, name or "
        "other state may have been reset although no user changed them.",
        "Compare the two events in a client or with `lakehouse state-at`. To repair the current state, send the state "
        "event again.",
    ),
    IntegrityCheck(
        "current_state_differs",
        "pieces of current state that differ from the state at the forward extremities",
        "All forward extremities of the room agree on the piece of state, or all lack it, but current_state_events "
        "differs. Depending on the request, Synapse answers from the current state or from the extremities. The next "
        "state event may set the current state back to the state at the extremities.",
        "Compare the two events with `lakehouse state-at`. To repair the current state, send the state event again.",
        follows=("state_group_changed", "state_group_incomplete"),
    ),
    IntegrityCheck(
        "local_membership_differs",
        "memberships of this server's users that differ from the current state",
        "local_current_membership differs from current_state_events. Syncs of the user contain a room that the user "
        "left, or lack a room that the user joined.",
        "The expected event is the user's membership in the room. Let the user leave and join the room again, or "
        "restore the row from the last release that has it.",
        follows=("state_reset", "current_state_differs"),
    ),
    IntegrityCheck(
        "sliding_sync_outdated",
        "rows for sliding sync that are out of date",
        "Synapse derives these rows from the room's events, the current state and local memberships. Clients with "
        "sliding sync see an old membership, an old order of rooms, or no room.",
        "Stop Synapse. Delete the row if there is one, with index scans off. For sliding_sync_joined_rooms, insert the "
        "room into sliding_sync_joined_rooms_to_recalculate. Then insert the background updates "
        "sliding_sync_joined_rooms_bg_update and sliding_sync_membership_snapshots_bg_update into background_updates, "
        "with the progress_json '{}'.",
        follows=("state_reset", "current_state_differs", "local_membership_differs", "event_unloadable"),
    ),
    *REFERENCE_CHECKS,
    IntegrityCheck(
        "index_foreign_entry",
        "index entries that point to rows of other keys",
        "Synapse reads, changes and deletes the wrong rows when it searches for some keys. Rows of other rooms may be "
        "lost at any time.",
        REBUILD_INDEX,
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "index_missing_entry",
        "rows that an index lacks",
        "Synapse does not find the row, and answers as if it did not exist. When Synapse deletes the predecessor of a "
        "state group, it reads the group's state by the index and stores this state again in full, without the row. A "
        "unique index that lacks a row accepts a second row with the same key.",
        REBUILD_INDEX,
        harm=Harm.LOST,
        follows=("index_foreign_entry",),
    ),
    IntegrityCheck(
        "index_repeated_entry",
        "rows that an index returns more than once",
        "Synapse reads the row twice.",
        REBUILD_INDEX,
        follows=INDEX_CAUSES,
    ),
    IntegrityCheck(
        "index_unreadable",
        "indexes that PostgreSQL cannot read",
        "Queries of Synapse fail if they need an entry that PostgreSQL cannot read.",
        REBUILD_INDEX,
        follows=(*INDEX_CAUSES, "index_repeated_entry"),
    ),
    IntegrityCheck(
        "event_without_json",
        "events without their JSON",
        "Synapse lists the event but cannot load it. Clients do not see the event, and joins may fail.",
        "Restore the rows of event_json from a backup, or from the last release that has them.",
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "event_lost",
        "lost events whose JSON is still stored",
        "The JSON is still stored. Synapse deletes an event together with its JSON, so Synapse did not delete this "
        "event. Clients do not see the event. Its stream ID is known only if another table contains it; otherwise at "
        "most bounds of the ID are known.",
        "Restore the rows of events from a backup, or from the last release that has them. If they cannot be "
        "restored, add the room to LAKEHOUSE_ACKNOWLEDGED_ROOMS.",
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "json_without_event",
        "rows of event_json without an event",
        "The content of the event is still stored although nothing refers to it. The event may have been only an "
        "outlier.",
        "If the event was purged, delete the row of event_json with index scans off. Otherwise the row of events was "
        "lost: restore it from the last release that has it, or from a backup.",
        harm=Harm.UNTIDY,
    ),
    IntegrityCheck(
        "event_altered",
        "events whose JSON was changed after they were signed",
        "The stored JSON was changed after it was signed, but not by a redaction. Other servers redact the event or "
        "reject it. If the event ID does not match the JSON, requests that load the event fail.",
        "gold.event_hashes contains the hash that differs. Restore the row of event_json from a backup, or from the "
        "last release in which the event was intact.",
    ),
    IntegrityCheck(
        "event_unloadable",
        "events that Synapse cannot load",
        "Synapse does not accept the stored JSON or internal metadata. Clients do not see the event, some requests "
        "fail, and a membership or piece of state that the event sets has no effect.",
        "gold.events.unloadable contains the reason. Restore the row of event_json from a backup, or from the last "
        "release in which the event could be loaded.",
    ),
    *STATE_GROUP_CHECKS,
    IntegrityCheck(
        "room_statistics",
        "wrong values in the statistics of rooms",
        "room_stats_current or room_stats_state differs from the current state, so room lists and the admin API show "
        "wrong numbers or properties.",
        "The job populate_stats_process_rooms of Synapse's admin API (background_updates/start_job) counts all rooms "
        "again.",
        follows=("state_reset", "current_state_differs", "copied_value_differs"),
    ),
    IntegrityCheck(
        "unreadable_value",
        "values that are not JSON objects, although they should be",
        'The copy has "unreadable" or "not an object" in place of the value. A request may fail if it reads a value '
        "that is not JSON. An example is a sync that contains the receipts of the room.",
        "The finding's subject contains the column and the key. Restore the row from a backup, or delete it with "
        "index scans off. Clients send their receipts again.",
    ),
    IntegrityCheck(
        "forward_extremities",
        "rooms with many forward extremities",
        "Every new event refers to up to 10 forward extremities, and Synapse resolves their states, so sending to the "
        "room is slow.",
        "Send a few messages to the room as a local user. Do not delete the forward extremities by the admin API "
        "(rooms/…/forward_extremities): the room then loses the state that only the deleted extremities have.",
        harm=Harm.UNTIDY,
    ),
    IntegrityCheck(
        "retention_overdue",
        "rooms with messages that retention should have purged",
        "Clients no longer see these messages, but the database contains them longer than the retention allows.",
        "Search Synapse's log for errors of the purge jobs, and check retention.purge_jobs.",
        harm=Harm.UNTIDY,
    ),
)
"""All checks, in the order of their output."""

WORST_FIRST: Final = tuple(sorted(INTEGRITY_CHECKS, key=lambda check: [*Harm].index(check.harm)))
"""All checks, in the order of their harm."""
