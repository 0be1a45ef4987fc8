"""The checks of state groups, and of the events that use them. Pure."""

from typing import Final

from synapse_lakehouse.room_state.integrity_check import INDEX_CAUSES, REBUILD_INDEX, Harm, IntegrityCheck

_RESTORE: Final = (
    "`lakehouse state restore-plan` prints SQL that restores the rows from earlier releases. If no release has them, "
    "restore them from a backup. Do not compress the room before."
)
_REPLACE_EDGE: Final = (
    "Stop Synapse. With index scans off, delete the wrong row of state_group_edges. If the last release before the "
    "finding has another row for the group, insert that row. Do not compress the room before."
)
_STOP: Final = (
    "Stop Synapse, or at least its process with the background tasks, and the compressors now: no setting of Synapse "
    "disables its deletion of state groups."
)
_GROUP_CAUSES: Final = (
    *INDEX_CAUSES, "state_row_repeated", "state_group_missing", "state_group_missing_predecessor",
)  # fmt: skip


STATE_GROUP_CHECKS: Final = (
    IntegrityCheck(
        "event_without_state_group",
        "events that have no state group although they are not outliers",
        "Synapse cannot determine the room's state at the event, and requests that need this state fail.",
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
        follows=INDEX_CAUSES,
    ),
    IntegrityCheck(
        "state_row_repeated",
        "pieces of state with several rows in one state group",
        "Synapse reads any one of the rows. Either the table's index is damaged, so Synapse did not find the earlier "
        "row when it stored the state again. Or rows were inserted by hand. The lake uses the event whose ID is last "
        "in alphabetical order.",
        REBUILD_INDEX + " With `--overwrite`, the plan deletes the newer row. If the oldest readable release of the "
        "group has both rows, the plan leaves both; delete the wrong row by its ctid.",
        harm=Harm.LOST,
        follows=INDEX_CAUSES,
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
        _STOP + " silver.state_changes lists each changed piece of state. `lakehouse state restore-plan` prints SQL "
        "that restores the rows. If you accept the changes, add the room and the time of the release to "
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
        "release. The group's descendants then have the creation event, too.",
        harm=Harm.LOST,
        follows=(*_GROUP_CAUSES, "state_group_changed"),
    ),
    IntegrityCheck(
        "state_not_of_previous_event",
        "events whose state does not follow from the previous events",
        "Either rows were lost or changed in the state group of the event or of a previous event. Or the event has the "
        "wrong state group, perhaps one of another room. Synapse answers with this wrong state.",
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
        "state_group_edges only use disk space. If only the row of state_groups was lost, Synapse still needs the rows "
        "of the other two tables.",
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
        "The predecessor's row of state_groups is missing. If the predecessor's other rows are missing too, all of its "
        "descendants lack its state.",
        _RESTORE,
        harm=Harm.LOST,
        follows=(*INDEX_CAUSES, "state_group_missing"),
    ),
    IntegrityCheck(
        "state_group_other_room",
        "state groups whose predecessor belongs to another room",
        "No row is missing now. If Synapse deletes the other room, it deletes a part of this room's state too.",
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
)
