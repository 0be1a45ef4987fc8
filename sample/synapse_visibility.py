"""Apply Synapse's own visibility filter to all events for all local users. Synapse's Python runs this program.

Arguments: the libpq URI of a database that Synapse may change, a folder for scratch files, the file to write, the
filter's current time in ms, and sections of homeserver.yaml as JSON. It writes JSON lines:

- ``{"room_id", "event_ids"}`` begins a room. The IDs are all events of the room, sorted.
- ``{"user_id", "peeking", "answers"}`` follows for each user that ever had a membership in the room, sorted, then for a
  user that never had (user_id null). ``answers`` has an index into the vocabulary for each event, or null if Synapse
  raised an error.
- ``{"vocabulary": [[outcome, membership], …], "errors": {event_id: error, …}, "seconds"}`` ends the file.
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from synapse import visibility

from sample.synapse_app import run_in_synapse

filter_events = (
    getattr(visibility, "filter_and_transform_events_for_client", None) or visibility.filter_events_for_client
)

MEMBERS = """
select room_id, state_key from events where type = 'm.room.member' and state_key is not null
union select room_id, user_id from room_memberships
union select room_id, user_id from local_current_membership
"""
NEVER_MEMBER = "@never.a.member:"

Answer = tuple[str, str | None]
HIDDEN: Answer = ("hidden", None)


class Filter:
    """The event loader and the visibility filter of a homeserver. ``errors``: by event ID."""

    def __init__(self, hs: Any) -> None:
        self.store = hs.get_datastores().main
        self.storage = hs.get_storage_controllers()
        self.errors: dict[str, str] = {}
        self.originals: dict[int, Any] = {}
        """Identity of a copy that the filter returned → original event. Releases before 1.152 return copies."""
        if copy := getattr(visibility, "clone_event", None):
            visibility.clone_event = lambda event: self.record_copy(event, copy(event))

    def record_copy(self, event: Any, copy: Any) -> Any:
        """Record that ``copy`` is a copy of ``event``; return ``copy``."""
        self.originals[id(copy)] = event
        return copy

    async def load(self, event_ids: list[str]) -> list[Any]:
        """Return events with their replaced content, as for clients. Events that Synapse withholds are missing."""
        try:
            return list((await self.store.get_events(event_ids, get_prev_content=True)).values())
        except Exception as error:  # noqa: BLE001 - the loader raises many kinds of errors
            return [event for half in self._halves(event_ids, event_ids[0], error) for event in await self.load(half)]

    async def compute_answers(self, user_id: str, peeking: bool, events: list[Any]) -> dict[str, Answer | None]:
        """Return answers by event ID: missing if the event is hidden, None if Synapse raises an error for it."""
        try:
            visible = await filter_events(self.storage, user_id, events, is_peeking=peeking)
        except Exception as error:  # noqa: BLE001 - the filter raises many kinds of errors
            answers: dict[str, Answer | None] = {}
            for half in self._halves(events, events[0].event_id, error):
                answers |= await self.compute_answers(user_id, peeking, half)
            return answers if len(events) > 1 else {events[0].event_id: None}
        # The filter returns an unpruned event as the same object or as a copy.
        unchanged_ids = {id(event) for event in events}
        return {
            event.event_id: (
                "full" if id(self.originals.pop(id(event), event)) in unchanged_ids else "redacted",
                membership,
            )
            for event, membership in map(event_and_membership, visible)
        }

    def _halves(self, events: list[Any], first_id: str, error: Exception) -> list[list[Any]]:
        """Return the two halves of ``events``. Record the error of a single event instead."""
        if len(events) == 1:
            self.errors[first_id] = repr(error)
            return []
        return [events[: len(events) // 2], events[len(events) // 2 :]]


def event_and_membership(item: Any) -> tuple[Any, str]:
    """Return the event and the user's membership at it, from a result of the filter."""
    if hasattr(item, "event"):
        return item.event, item.membership
    # Releases before 1.152.
    return item, item.unsigned["membership"]


async def write_answers(hs: Any, out: Path, as_of: int) -> None:
    """Write the answers for all users and events."""
    visibility_filter = Filter(hs)
    # In some releases, the clock has slots, so its class is changed.
    type(visibility_filter.store.clock).time_msec = lambda _: as_of
    execute = visibility_filter.store.db_pool.execute
    rooms, members = defaultdict(list), defaultdict(list)
    for event_id, room_id in await execute("events", "select event_id, room_id from events"):
        rooms[room_id].append(event_id)
    for room_id, user_id in await execute("members", MEMBERS):
        if hs.is_mine_id(user_id):
            members[room_id].append(user_id)
    vocabulary: dict[Answer, int] = {HIDDEN: 0}
    count, started_at = 0, time.monotonic()
    with out.open("w") as lines:
        for number, room_id in enumerate(sorted(rooms), 1):
            event_ids = sorted(rooms[room_id])
            events = await visibility_filter.load(event_ids)
            unknown = dict.fromkeys(visibility_filter.errors.keys() & event_ids)
            print(json.dumps({"room_id": room_id, "event_ids": event_ids}), file=lines)
            for user_id in (*sorted(members[room_id]), None):
                for peeking in (False, True):
                    user = user_id or NEVER_MEMBER + hs.hostname
                    answers_by_event = unknown | await visibility_filter.compute_answers(user, peeking, events)
                    answers = [answers_by_event.get(event_id, HIDDEN) for event_id in event_ids]
                    indexes = [answer and vocabulary.setdefault(answer, len(vocabulary)) for answer in answers]
                    print(json.dumps({"user_id": user_id, "peeking": peeking, "answers": indexes}), file=lines)
                    count += len(event_ids)
            rate = f"{count / (time.monotonic() - started_at):,.0f} a second"
            print(f"{number} of {len(rooms)} rooms, {count:,} answers, {rate}", file=sys.stderr, flush=True)
        seconds = time.monotonic() - started_at
        print(
            json.dumps({"vocabulary": list(vocabulary), "errors": visibility_filter.errors, "seconds": seconds}),
            file=lines,
        )


def main(dsn: str, scratch: str, out: str, as_of: str, sections: str) -> None:
    """Start Synapse and write the answers."""
    run_in_synapse(dsn, Path(scratch), lambda hs: write_answers(hs, Path(out), int(as_of)), **json.loads(sections))


if __name__ == "__main__":
    main(*sys.argv[1:])
