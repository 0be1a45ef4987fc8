"""The checks of ``gold.state_integrity``, which find faults in Synapse's database. Pure."""

from typing import Final

from synapse_lakehouse.room_state.integrity_check import Harm, IntegrityCheck
from synapse_lakehouse.room_state.reference_checks import REFERENCE_CHECKS

_RESTORE: Final = (
    "`lakehouse state restore-plan` prints SQL that restores the rows from earlier releases. If no release has them, "
    "restore them from a backup. Do not compress the room before."
)
_REPLACE_EDGE: Final = (
    "Stop Synapse. With index scans off, delete the wrong row of state_group_edges. If the last release before the "
    "finding has another row for the group, insert that row. Do not compress the room before."
)
_REBUILD: Final = (
    "Stop Synapse. Run no statement that deletes rows by this index. `lakehouse doctor --deep --indexes TABLE` reads "
    "the whole index. Then run REINDEX TABLE, and restore lost rows: `lakehouse state restore-plan`."
)
_STOP: Final = (
    "Stop Synapse, or at least its process with the background tasks, and the compressors now: no setting of Synapse "
    "disables its deletion of state groups."
)
_INDEX_CAUSES: Final = ("index_foreign_entry", "index_missing_entry")
"""With an index that has such findings, Synapse deletes rows of other state groups, or stores a state without the rows
that it did not find."""
_GROUP_CAUSES: Final = (
    *_INDEX_CAUSES, "state_row_repeated", "state_group_missing", "state_group_missing_predecessor",
)  # fmt: skip


INTEGRITY_CHECKS: Final = (
    IntegrityCheck(
        "state_reset",
        "pieces of current state that differ from their last recorded change",
        "current_state_events differs from the last row of current_state_delta_stream. The room's members, name or "
        "other state may have been reset although no user changed them.",
        "Compare the two events in a client or with `lakehouse state-at`. Sending the state event again repairs it.",
    ),
    IntegrityCheck(
        "current_state_differs",
        "pieces of current state that differ from the state at the forward extremities",
        "All forward extremities of the room agree on the piece of state, or all lack it, but current_state_events "
        "differs. Depending on the request, Synapse answers from the current state or from the extremities. The next "
        "state event may set the current state back to the state at the extremities.",
        "Compare the two events with `lakehouse state-at`. Sending the state event again repairs it.",
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
        _REBUILD,
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "index_missing_entry",
        "rows that an index lacks",
        "Synapse does not find the row, and answers as if it did not exist. Synapse stores the state of a group again "
        "when it deletes the group's predecessor; the new state then lacks the row. A unique index that lacks a row "
        "accepts a second row with the same key.",
        _REBUILD,
        harm=Harm.LOST,
        follows=("index_foreign_entry",),
    ),
    IntegrityCheck(
        "index_repeated_entry",
        "rows that an index returns more than once",
        "Synapse reads the row twice.",
        _REBUILD,
        follows=_INDEX_CAUSES,
    ),
    IntegrityCheck(
        "index_unreadable",
        "indexes that PostgreSQL cannot read",
        "Queries of Synapse fail if they need an entry that PostgreSQL cannot read.",
        _REBUILD,
        follows=(*_INDEX_CAUSES, "index_repeated_entry"),
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
        "event. Clients do not see the event. Its stream ID is unknown, or only bounds of the ID are known.",
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
        "The stored JSON was changed after it was signed, but not by a redaction. Other servers reject the event. If "
        "the event ID does not match the JSON either, requests that load the event fail.",
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
    IntegrityCheck(
        "event_without_state_group",
        "events that have no state group although they are not outliers",
        "Synapse cannot determine the room's state at the event, and requests that need it fail.",
        "Restore the rows of event_to_state_groups from the last release that has them, or from a backup.",
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "state_group_missing",
        "missing state groups that events refer to",
        "The row of state_groups is missing, so Synapse stores no new event with this state group. If the other rows "
        "of the group are missing too, Synapse treats the room's state at the events as empty.",
        _RESTORE,
        harm=Harm.LOST,
        follows=_INDEX_CAUSES,
    ),
    IntegrityCheck(
        "state_row_repeated",
        "pieces of state with several rows in one state group",
        "Synapse reads any one of the rows. The table's index is damaged, so Synapse did not find the earlier row when "
        "it stored the state again. Or rows were inserted by hand. The lake uses the event with the last ID.",
        _REBUILD + " With `--overwrite`, the plan deletes the newer row. If no release has the correct row alone, "
        "delete the wrong row by its ctid.",
        harm=Harm.LOST,
        follows=_INDEX_CAUSES,
    ),
    IntegrityCheck(
        "state_group_incomplete",
        "pieces of state that are missing in state groups",
        "In these state groups and their descendants, Synapse treats the piece of state as never set, or uses its "
        "earlier value. That changes permissions, visibility, and the state that other servers receive.",
        _RESTORE,
        harm=Harm.LOST,
        follows=(*_GROUP_CAUSES, "state_group_changed", "state_group_without_creation"),
    ),
    IntegrityCheck(
        "state_group_changed",
        "state groups whose state has changed since an earlier release",
        "Rows of state were lost or changed in the database. Synapse answers with the wrong state. If a damaged index "
        "is the cause, Synapse may delete more rows.",
        _STOP + " silver.state_changes has every piece of state. `lakehouse state restore-plan` prints SQL that "
        "restores the rows. If you accept the changes, add the room and the time of the release to "
        "LAKEHOUSE_ACKNOWLEDGED_ROOMS. Later changes are new findings.",
        harm=Harm.LOST,
        follows=_GROUP_CAUSES,
    ),
    IntegrityCheck(
        "state_group_without_creation",
        "state groups without the creation event of their room",
        "Requests fail if they need the room's state at an event of such a state group. Users cannot send, join or "
        "read there.",
        _STOP + " `lakehouse state restore-plan` prints SQL that restores the rows of the named group from an earlier "
        "release. The groups after it follow.",
        harm=Harm.LOST,
        follows=(*_GROUP_CAUSES, "state_group_changed"),
    ),
    IntegrityCheck(
        "state_not_of_previous_event",
        "events whose state does not follow from the previous events",
        "The state group of the event, or of the event before it, has lost or changed rows, or the event has the wrong "
        "state group, perhaps that of another room. Synapse answers with this wrong state.",
        "Compare both states with `lakehouse state-at`. `lakehouse state restore-plan` prints SQL that restores lost "
        "rows from an earlier release.",
        follows=(
            *_GROUP_CAUSES,
            "state_group_changed",
            "state_group_without_creation",
            "state_group_incomplete",
            "state_group_newer_predecessor",
        ),
    ),
    IntegrityCheck(
        "stray_state_rows",
        "leftover rows of deleted state groups",
        "The row of state_groups is missing. If Synapse deleted the group, its rows of state_groups_state and "
        "state_group_edges only use disk space. If the row was lost, Synapse still needs them.",
        "If state_group_missing and state_group_missing_predecessor have no finding, delete the rows of these groups. "
        "docs/runbooks/integrity.md has the SQL.",
        harm=Harm.UNTIDY,
        follows=_GROUP_CAUSES,
    ),
    IntegrityCheck(
        "state_group_cycle",
        "state groups whose predecessors form a cycle",
        "These groups and their descendants have no state. Synapse may never finish reading the state.",
        _REPLACE_EDGE,
    ),
    IntegrityCheck(
        "state_group_missing_predecessor",
        "state groups whose predecessor is missing",
        "The predecessor's row of state_groups is missing. If its other rows are missing too, all of its descendants "
        "lack its state.",
        _RESTORE,
        harm=Harm.LOST,
        follows=(*_INDEX_CAUSES, "state_group_missing"),
    ),
    IntegrityCheck(
        "state_group_other_room",
        "state groups whose predecessor belongs to another room",
        "Deleting the other room deletes a part of this room's state.",
        "Do not purge the other room before these groups are stored in full.",
        harm=Harm.UNTIDY,
    ),
    IntegrityCheck(
        "state_group_several_predecessors",
        "state groups with several predecessors",
        "Only one predecessor is correct, but Synapse merges the state of all predecessors. The lake uses one of them.",
        "Delete the wrong rows of state_group_edges. The last release before the finding contains the correct row.",
    ),
    IntegrityCheck(
        "state_group_newer_predecessor",
        "state groups whose predecessor is newer",
        "The predecessor has the higher number. Synapse lets the predecessor's rows replace the group's own rows, "
        "so the resulting state is wrong.",
        _REPLACE_EDGE,
    ),
    IntegrityCheck(
        "state_chain_too_long",
        "rooms with chains of more than 100 state groups",
        "Reading state takes as many steps as the chain has groups. Synapse's compressor, with its default "
        "levels (100, 50, 25), leaves chains of up to 175 groups.",
        "`lakehouse compress plan` shows the result of LAKEHOUSE_COMPRESSOR_STRATEGY=best.",
        harm=Harm.UNTIDY,
    ),
    IntegrityCheck(
        "state_group_unreferenced",
        "state groups that no event needs",
        "These state groups only use disk space. Every healthy database contains some of them.",
        "Synapse deletes such state groups in the background, soon after `lakehouse compress apply "
        "--hand-over-unreferenced`.",
        harm=Harm.UNTIDY,
    ),
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
        "values that should be JSON objects",
        "The copy does not contain such a value. A request may fail if it reads a value that is not JSON. An example "
        "is a sync that contains the receipts of the room.",
        "The finding's subject contains the column and the key. Restore the row from a backup, or delete it with "
        "index scans off. Clients send their receipts again.",
    ),
    IntegrityCheck(
        "forward_extremities",
        "rooms with many forward extremities",
        "Every new event refers to up to 10 forward extremities, and Synapse resolves their states, so sending to the "
        "room is slow.",
        "Send a few messages to the room as a local user. Do not delete the forward extremities by the admin API "
        "(rooms/…/forward_extremities): the room then loses the state that only the deleted ones have.",
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
