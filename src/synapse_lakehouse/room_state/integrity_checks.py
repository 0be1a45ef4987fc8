"""What is looked for in Synapse's database as a whole: the checks of ``gold.state_integrity``. Pure."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class IntegrityCheck:
    """A check. ``title``: what it finds, in the plural; ``means``: what follows from it; ``advice``: what to do."""

    name: str
    title: str
    means: str
    advice: str


_RESTORE: Final = "Restore the rows from a backup: no tool can work them out. Do not compress the room meanwhile."

INTEGRITY_CHECKS: Final = (
    IntegrityCheck(
        "state_reset",
        "pieces of state that are not what was said last",
        "current_state_events differs from the last row of current_state_delta_stream: who is in the room, or what it "
        "is called, may have gone back without anybody doing it.",
        "Compare the two events in a client or with `lakehouse state-at`. Sending the piece of state anew repairs it.",
    ),
    IntegrityCheck(
        "current_state_without_event",
        "pieces of current state whose event is not stored",
        "Synapse cannot load this part of a room's state.",
        "Fetch the event again by rejoining the room from another server, or restore it from a backup.",
    ),
    IntegrityCheck(
        "event_without_json",
        "events without their JSON",
        "Synapse lists the event and cannot load it: clients see a hole, and joins may fail.",
        "Restore the rows of event_json from a backup, or from the last release that has them.",
    ),
    IntegrityCheck(
        "event_lost",
        "events that are lost although their JSON is stored",
        "Synapse deletes an event with its JSON. The row of events was lost in another way, so clients do not see the "
        "event. Its stream ID is not known, or only between which IDs it is.",
        "Restore the rows of events from a backup, or from the last release that has them. Where they cannot be "
        "restored, name the room in LAKEHOUSE_ACKNOWLEDGED_ROOMS.",
    ),
    IntegrityCheck(
        "json_without_event",
        "JSON of events that are not there",
        "What somebody wrote is still stored although nothing leads to it, and nothing shows that the event was more "
        "than an outlier.",
        "If the event was purged, delete the row of event_json; if not, the row of events was lost: see a backup.",
    ),
    IntegrityCheck(
        "event_altered",
        "events that are not what was sent",
        "The stored JSON was changed after it was signed, and not by a redaction: what is read is not what its sender "
        "wrote, and other servers refuse it. Where its id is another one, Synapse fails on what loads it, too.",
        "gold.event_hashes says which hash differs. Restore the row of event_json from a backup, or from the last "
        "release in which the event was intact.",
    ),
    IntegrityCheck(
        "event_unloadable",
        "events that Synapse cannot load",
        "The stored JSON or internal metadata is not what Synapse accepts: clients do not see the event, some requests "
        "fail, and a membership or a piece of state that it sets does not count.",
        "gold.events.unloadable contains the reason. Restore the row of event_json from a backup, or from the last "
        "release in which the event could be loaded.",
    ),
    IntegrityCheck(
        "event_without_state_group",
        "events without a state group that are no outliers",
        "Synapse cannot tell the room's state at the event and fails on requests that need it.",
        "Restore the rows of event_to_state_groups from a backup.",
    ),
    IntegrityCheck(
        "state_group_without_event",
        "state groups kept for events that are not there",
        "A leftover that keeps state groups from being deleted.",
        "If the event was purged, delete the row of event_to_state_groups.",
    ),
    IntegrityCheck(
        "state_group_missing",
        "state groups that events name and that are gone",
        "Synapse takes the room's state at these events for empty.",
        _RESTORE,
    ),
    IntegrityCheck(
        "state_group_incomplete",
        "pieces of state that state groups lost",
        "Synapse takes the piece for never said, or for what it was before, wherever it looks at these state groups "
        "and those that rest on them: in who may do and see what, and in the state that other servers are given.",
        _RESTORE,
    ),
    IntegrityCheck(
        "stray_state_rows",
        "state groups that are gone and left rows",
        "Rows of state_groups_state or state_group_edges that nothing leads to: they only take space, unless their row "
        "of state_groups was lost.",
        "If no event names the group (see state_group_missing), delete the rows.",
    ),
    IntegrityCheck(
        "state_group_cycle",
        "state groups that rest on each other in a circle",
        "They and all that rest on them have no state; Synapse may run for ever in reading it.",
        _RESTORE,
    ),
    IntegrityCheck(
        "state_group_missing_predecessor",
        "state groups that rest on one that is gone",
        "What the lost group held is missing from the state of all that rest on it.",
        _RESTORE,
    ),
    IntegrityCheck(
        "state_group_other_room",
        "state groups that rest on one of another room",
        "Deleting the other room takes part of this room's state away.",
        "Do not purge the other room before its groups were written out as a whole.",
    ),
    IntegrityCheck(
        "state_group_several_predecessors",
        "state groups that name several predecessors",
        "Only one can be meant; Synapse merges all of them.",
        "Delete the wrong edges: the right one is in the last release before the finding.",
    ),
    IntegrityCheck(
        "state_group_newer_predecessor",
        "state groups that rest on a newer one",
        "Synapse reads the newer group as if it overwrote the older one, so the state that it finds is wrong.",
        _RESTORE,
    ),
    IntegrityCheck(
        "state_chain_too_long",
        "rooms with chains of state groups beyond 100",
        "Reading state takes as many steps as a chain has groups. Up to 175 is what a compressor with the usual levels "
        "leaves.",
        "`lakehouse compress plan` shows what compressing with LAKEHOUSE_COMPRESSOR_STRATEGY=best would leave.",
    ),
    IntegrityCheck(
        "state_group_unreferenced",
        "state groups that no event needs",
        "They only take space. Some are in every healthy database.",
        "Synapse deletes them in the background, soon after `lakehouse compress apply --hand-over-unreferenced`.",
    ),
    IntegrityCheck(
        "room_statistics",
        "numbers of rooms that Synapse counted wrongly",
        "room_stats_current differs from the current state: room lists and the admin API show wrong numbers.",
        "The job populate_stats_process_rooms of Synapse's admin API (background_updates/start_job) counts all rooms "
        "anew.",
    ),
    IntegrityCheck(
        "unreadable_value",
        "values that should be JSON objects",
        "The copy holds nothing of such a value. Synapse fails on what reads one that is no JSON, such as a sync with "
        "the receipts of the room.",
        "The subject names column and key. Restore the row from a backup, or delete it: clients send receipts again.",
    ),
    IntegrityCheck(
        "forward_extremities",
        "rooms with many forward extremities",
        "Every new event has to join them, so sending to the room is slow. More than 20 cannot be joined at once.",
        "Let a local user send to the room a few times; the admin API (rooms/…/forward_extremities) can delete them.",
    ),
    IntegrityCheck(
        "retention_overdue",
        "rooms with messages that retention should have purged",
        "Clients do not see them any more, but they are still stored.",
        "Look for errors of the purge jobs in Synapse's log; check retention.purge_jobs.",
    ),
)
"""All of them, in the order in which they are told."""
