"""Run Synapse's own visibility filter for every local user and every event. Run by Synapse's own Python.

Arguments: a libpq URI of a database that may be written to, a folder for scratch files, the file to write, the time
in ms that the filter shall take for now, and sections of homeserver.yaml as JSON. Writes JSON lines:

- ``{"room_id", "event_ids"}`` begins a room: all of its events in ``events``, sorted;
- ``{"user_id", "peeking", "answers"}``, for everyone who ever had a membership there, sorted, then for one who never
  had (user_id null): an answer per event, as its number in the vocabulary, null where Synapse raised;
- ``{"vocabulary": [[outcome, membership], …], "errors": {event_id: error, …}, "seconds"}`` ends the file.
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from synapse import visibility

from sample.synapse_app import ask

filter_events = (
    getattr(visibility, "filter_and_transform_events_for_client", None) or visibility.filter_events_for_client
)

MEMBERS = """
select room_id, state_key from events where type = 'm.room.member' and state_key is not null
union select room_id, user_id from room_memberships
union select room_id, user_id from local_current_membership
"""
NOBODY = "@never.a.member:"

Answer = tuple[str, str | None]
HIDDEN: Answer = ("hidden", None)


class Filter:
    """The loader and the filter of one homeserver, for many events at once; errors are stored by event ID."""

    def __init__(self, hs: Any) -> None:
        self.store = hs.get_datastores().main
        self.storage = hs.get_storage_controllers()
        self.errors: dict[str, str] = {}
        self.copied: dict[int, Any] = {}
        """Events that the filter copied, by the identity of the copy. Releases before 1.152 copy what they return."""
        if copy := getattr(visibility, "clone_event", None):
            visibility.clone_event = lambda event: self.remember(event, copy(event))

    def remember(self, event: Any, copy: Any) -> Any:
        """Return ``copy``, a copy of ``event``."""
        self.copied[id(copy)] = event
        return copy

    async def load(self, event_ids: list[str]) -> list[Any]:
        """The events as clients get them, with the content they replaced; those that are withheld are not there."""
        try:
            return list((await self.store.get_events(event_ids, get_prev_content=True)).values())
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            return [item for half in self._halves(event_ids, event_ids[0], error) for item in await self.load(half)]

    async def see(self, user_id: str, peeking: bool, events: list[Any]) -> dict[str, Answer | None]:
        """Event id → answer: absent when hidden, None when Synapse raises on this event."""
        try:
            observed = await filter_events(self.storage, user_id, events, is_peeking=peeking)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            answers: dict[str, Answer | None] = {}
            for half in self._halves(events, events[0].event_id, error):
                answers |= await self.see(user_id, peeking, half)
            return answers if len(events) > 1 else {events[0].event_id: None}
        # The filter returns an event that it does not prune as the same object, or as a copy.
        unchanged_ids = {id(event) for event in events}
        return {
            event.event_id: (
                "full" if id(self.copied.pop(id(event), event)) in unchanged_ids else "redacted",
                membership,
            )
            for event, membership in map(event_and_membership, observed)
        }

    def _halves(self, asked: list[Any], first: str, error: Exception) -> list[list[Any]]:
        if len(asked) == 1:
            self.errors[first] = repr(error)
            return []
        return [asked[: len(asked) // 2], asked[len(asked) // 2 :]]


def event_and_membership(item: Any) -> tuple[Any, str]:
    """An event that the filter returned, and the user's membership at it."""
    if hasattr(item, "event"):
        return item.event, item.membership
    # Releases before 1.152.
    return item, item.unsigned["membership"]


async def answers(hs: Any, out: Path, as_of: int) -> None:
    """Write the answers of ``hs`` to every question there is."""
    visibility_filter = Filter(hs)
    # Its clock has slots in some releases.
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
                    observed = unknown | await visibility_filter.see(user_id or NOBODY + hs.hostname, peeking, events)
                    answers = [observed.get(event_id, HIDDEN) for event_id in event_ids]
                    numbers = [item and vocabulary.setdefault(item, len(vocabulary)) for item in answers]
                    print(json.dumps({"user_id": user_id, "peeking": peeking, "answers": numbers}), file=lines)
                    count += len(event_ids)
            pace = f"{count / (time.monotonic() - started_at):,.0f} a second"
            print(f"{number} of {len(rooms)} rooms, {count:,} answers, {pace}", file=sys.stderr, flush=True)
        seconds = time.monotonic() - started_at
        print(
            json.dumps({"vocabulary": list(vocabulary), "errors": visibility_filter.errors, "seconds": seconds}),
            file=lines,
        )


def main(dsn: str, scratch: str, out: str, as_of: str, sections: str) -> None:
    """Command line."""
    ask(dsn, Path(scratch), lambda hs: answers(hs, Path(out), int(as_of)), **json.loads(sections))


if __name__ == "__main__":
    main(*sys.argv[1:])
