"""Seeded faults of room state in a copy of Synapse's database. Each changes the state of a group or at an event."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.support.state_rooms import State, resolve_state


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, and the check, subject and room of the finding that it must cause."""

    kind: str
    check: str
    subject: str
    room: str | None


@dataclass
class StateFaults:
    """The state groups of a database. ``plant`` changes them: each at most once."""

    connection: psycopg.Connection[Any]
    chance: random.Random
    rooms: dict[int, str] = field(default_factory=dict)
    edges: dict[int, int] = field(default_factory=dict)
    rows: dict[int, State] = field(default_factory=lambda: defaultdict(dict))
    used: set[int] = field(default_factory=set)
    moved_events: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rooms = dict(self.connection.execute("select id, room_id from state_groups order by id").fetchall())
        self.edges = dict(self.connection.execute("select state_group, prev_state_group from state_group_edges"))
        rows = self.connection.execute("select state_group, type, state_key, event_id from state_groups_state")
        for group, type_, key, event in rows:
            self.rows[group][type_, key] = event

    def plant(self, number: int) -> Iterator[Fault]:
        """Plant ``number`` faults, of all kinds in turn; yield each."""
        kinds: list[Callable[[], Fault | None]] = [
            self._delete_row, self._change_row, self._delete_creation, self._delete_membership, self._cut_edge,
            self._move_edge, self._move_event, self._move_event_to_another_room,
        ]  # fmt: skip
        planted = 0
        while planted < number:
            if fault := kinds[planted % len(kinds)]():
                planted += 1
                yield fault

    def _delete_row(self) -> Fault | None:
        return self._fault_of_row("delete row", lambda key: key[0] not in ("m.room.create", "m.room.member"), None)

    def _change_row(self) -> Fault | None:
        return self._fault_of_row("change row", lambda _: True, "$changed")

    def _delete_creation(self) -> Fault | None:
        return self._fault_of_row("delete creation", lambda key: key[0] == "m.room.create", None)

    def _delete_membership(self) -> Fault | None:
        return self._fault_of_row("delete membership", lambda key: key[0] == "m.room.member", None)

    def _fault_of_row(self, kind: str, is_chosen: Callable[[tuple[str, str]], bool], event: str | None) -> Fault | None:
        candidates = [(g, key) for g in self.rows.keys() - self.used for key in self.rows[g] if is_chosen(key)]
        group, key = self.chance.choice(sorted(candidates))
        before = self._state(group)
        former = self.rows[group].pop(key)
        if event:
            self.rows[group][key] = event
        if self._state(group) == before:
            self.rows[group][key] = former
            return None
        where = "where state_group = %s and type = %s and state_key = %s"
        statement = f"update state_groups_state set event_id = '{event}' {where}" if event else ""
        self.connection.execute((statement or f"delete from state_groups_state {where}").encode(), [group, *key])
        return self._record_changed_group(kind, group)

    def _cut_edge(self) -> Fault | None:
        return self._fault_of_edge("cut edge", None)

    def _move_edge(self) -> Fault | None:
        return self._fault_of_edge("move edge", self.chance.choice(sorted(self.rooms)))

    def _fault_of_edge(self, kind: str, target: int | None) -> Fault | None:
        group = self.chance.choice(sorted(self.edges.keys() - self.used))
        if target and (target >= group or self.rooms[target] != self.rooms[group]):
            return None
        before, former = self._state(group), self.edges.pop(group)
        if target:
            self.edges[group] = target
        if self._state(group) == before:
            self.edges[group] = former
            return None
        self.connection.execute("delete from state_group_edges where state_group = %s", [group])
        if target:
            self.connection.execute("insert into state_group_edges values (%s, %s)", [group, target])
        return self._record_changed_group(kind, group)

    def _move_event(self) -> Fault | None:
        return self._move_an_event("move event", is_of_room=True)

    def _move_event_to_another_room(self) -> Fault | None:
        return self._move_an_event("move event to another room", is_of_room=False)

    def _move_an_event(self, kind: str, *, is_of_room: bool) -> Fault | None:
        rows = self.connection.execute("""
            select uses.event_id, uses.state_group from event_to_state_groups as uses join events using (event_id)
            join event_edges using (event_id) join events as earlier on earlier.event_id = prev_event_id
            where not events.outlier and not earlier.outlier and events.type = 'm.room.message'
            and events.stream_ordering > earlier.stream_ordering and earlier.stream_ordering > 0
            and not exists (select from ex_outlier_stream as former where former.event_id = prev_event_id)
            and not exists (select from event_edges as other
                where other.event_id = uses.event_id and other.prev_event_id <> event_edges.prev_event_id)
            order by 1""").fetchall()
        event, group = self.chance.choice(rows)
        target = self.chance.choice(
            sorted(g for g, room in self.rooms.items() if (room == self.rooms[group]) == is_of_room)
        )
        if self._state(target) == self._state(group) or group in self.used:
            return None
        self.used.add(group)
        self.moved_events.add(event)
        statement = "update event_to_state_groups set state_group = %s where event_id = %s"
        self.connection.execute(statement.encode(), [target, event])
        return Fault(kind, "state_not_of_previous_event", event, self.rooms[group])

    def _state(self, group: int) -> State:
        return resolve_state(self.edges, self.rows, group)

    def _record_changed_group(self, kind: str, group: int) -> Fault:
        self.used.add(group)
        return Fault(kind, "state_group_changed", str(group), self.rooms[group])
