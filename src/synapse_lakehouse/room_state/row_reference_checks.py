"""The checks of the references between Synapse's tables that the catalogue declares. Pure."""

from typing import Final

from synapse_lakehouse.room_state.integrity_check import Harm, IntegrityCheck

_RESTORE_ROWS: Final = "Restore the rows from a backup, or from the last release that has them."

REFERENCE_CHECKS: Final = (
    IntegrityCheck(
        "event_missing",
        "missing events that rows refer to",
        "Synapse needs the event but cannot load it. The event is a piece of current state, a membership, a forward "
        "extremity, an authorization event, or a part of the room's history.",
        _RESTORE_ROWS + " If other servers have the event and it is only history, insert its ID into "
        "event_backward_extremities, so that Synapse fetches it.",
        harm=Harm.LOST,
        follows=("event_lost",),
    ),
    IntegrityCheck(
        "event_incomplete",
        "events without rows that belong to them",
        "The event lacks its row in state_events, room_memberships, event_edges, redactions or rejections. Or it has "
        "fewer rows in event_edges or event_auth than its JSON lists. The effect depends on the table. Synapse does "
        "not treat the event as a state event, a membership, a redaction or a rejected event, or it does not find the "
        "events to which the event refers.",
        _RESTORE_ROWS,
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "copied_value_differs",
        "values that differ from the event that they were copied from",
        "Synapse stores the room, the type, the state key, the sender, the membership or the stream ID of an event in "
        "several tables. The values differ, so the answer depends on the table from which Synapse reads.",
        _RESTORE_ROWS + " The JSON of the event contains the right membership: set it in room_memberships (insert the "
        "row if it is missing) and in current_state_events.",
    ),
    IntegrityCheck(
        "room_missing",
        "rooms without a row in rooms",
        "Synapse does not know the room's version, so it cannot load any of the room's events.",
        _RESTORE_ROWS,
        harm=Harm.LOST,
    ),
    IntegrityCheck(
        "room_without_extremity",
        "rooms with state but without a forward extremity",
        "A new event has no event to refer to, so users cannot send to the room.",
        "Insert the latest event that is not rejected, soft-failed or an outlier into event_forward_extremities.",
    ),
    IntegrityCheck(
        "partial_state_without_room",
        "rooms that have events with partial state, but no fast join in progress",
        "Synapse waits forever for the full state at these events.",
        _RESTORE_ROWS,
    ),
    IntegrityCheck(
        "stray_event_rows",
        "leftover rows of events that are not stored",
        "The event is not stored. A row of event_to_state_groups keeps a state group from deletion. A backward "
        "extremity lets Synapse fetch an event that no stored event needs.",
        "If the event was purged, delete the rows with index scans off.",
        harm=Harm.UNTIDY,
    ),
    IntegrityCheck(
        "stray_room_rows",
        "leftover rows of rooms that are not stored",
        "The server does not have the room.",
        "If the room was purged, delete the rows with index scans off.",
        harm=Harm.UNTIDY,
    ),
    IntegrityCheck(
        "receipt_without_event",
        "receipts for events that are not stored any more",
        "A purge deletes events, but not the receipts for them.",
        "If the room's history was purged, do nothing.",
        harm=Harm.UNTIDY,
    ),
)
