"""Random rooms with all kinds of state groups, generated from a seed."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st

from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups

Key = tuple[str, str]
State = dict[Key, str]

SNAPSHOT_AFTER = 100
"""Maximum length of a chain. Synapse stores the next group in full."""
ODD = ["", " ", "it's", 'a "quoted" one', "back\\slash", "two\nlines", "%s %d", "ünï✓", "a$1b", "/*", "--", "\t;"]


@dataclass
class World:
    """Synapse's three tables of room state.

    By group: ``groups`` is the room, ``edges`` the predecessor, ``rows`` the delta, ``states`` the resolved state, and
    ``nodes`` the length of the chain.
    """

    rng: random.Random
    next_id: int = 1
    groups: dict[int, str] = field(default_factory=dict)
    edges: dict[int, int] = field(default_factory=dict)
    rows: dict[int, State] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    events: int = 0

    def event(self) -> str:
        """Return a new event ID."""
        self.events += 1
        return f"$event{self.events}:example.org"

    def add(self, room: str, state: State, prev: int | None = None) -> int:
        """Add a group with ``state``, if possible as a delta of ``prev``; return its ID."""
        group, self.next_id = self.next_id, self.next_id + 1
        self.groups[group], self.states[group], self.nodes[group] = room, dict(state), 1
        self.rows[group] = dict(state)
        if prev is not None and self.nodes[prev] < SNAPSHOT_AFTER and self.states[prev].keys() <= state.keys():
            self.edges[group], self.nodes[group] = prev, self.nodes[prev] + 1
            base = self.states[prev]
            self.rows[group] = {key: event for key, event in state.items() if base.get(key) != event}
        return group

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return ``state_groups``, ``state_group_edges`` and ``state_groups_state``."""
        rows = [(group, *key, event) for group, state in self.rows.items() for key, event in state.items()]
        return (
            _table({"id": pa.int64(), "room_id": pa.string()}, list(self.groups.items())),
            _table({"state_group": pa.int64(), "prev_state_group": pa.int64()}, list(self.edges.items())),
            _table(
                {"state_group": pa.int64(), "type": pa.string(), "state_key": pa.string(), "event_id": pa.string()},
                rows,
            ),
        )


def list_edges(groups: StateGroups) -> list[tuple[int, int]]:
    """Return the pairs of group and predecessor."""
    has_prev = groups.prev != NONE
    return list(zip(groups.ids[has_prev].tolist(), groups.prev_ids()[has_prev].tolist(), strict=True))


def _table(columns: dict[str, pa.DataType], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pa.table([pa.array(column, kind) for column, kind in zip(values, columns.values(), strict=True)], [*columns])


RoomGrowth = Iterator[None]


def _start(world: World, members: int) -> State:
    state = {(kind, ""): world.event() for kind in ("m.room.create", "m.room.power_levels", "m.room.join_rules")}
    return state | {_member(number): world.event() for number in range(members)}


def _member(number: int) -> Key:
    return "m.room.member", f"@user{number}:example.org"


def _next(world: World, state: State, join: float = 0.5) -> State:
    """Return the state after a join (with the probability ``join``), or after a change of an entry."""
    is_join = world.rng.random() < join or not state
    key = _member(world.events) if is_join else world.rng.choice(sorted(state))
    return state | {key: world.event()}


def grow_chain(world: World, room: str, groups: int) -> RoomGrowth:
    """Create groups that are each a delta of the group before, or a full state after a chain of 100 groups."""
    state = _start(world, world.rng.randrange(30))
    tip = world.add(room, state)
    for _ in range(groups - 1):
        yield
        state = _next(world, state)
        tip = world.add(room, state, tip)


def grow_forks(world: World, room: str, groups: int) -> RoomGrowth:
    """Create several forks at a time, and sometimes merge two by state resolution."""
    tips = [world.add(room, _start(world, world.rng.randrange(20)))]
    for _ in range(groups - 1):
        yield
        base = world.rng.choice(tips)
        if len(tips) > 1 and world.rng.random() < 0.2:
            other = world.rng.choice(tips)
            merged = world.states[base] | dict(world.rng.sample(sorted(world.states[other].items()), 3))
            tips = [tip for tip in tips if tip not in (base, other)]
            tips.append(world.add(room, merged, world.rng.choice([base, other])))
            continue
        end = world.add(room, _next(world, world.states[base]), base)
        if len(tips) > 4 or world.rng.random() < 0.8:
            tips.remove(base)
        tips.append(end)


def grow_backfilled(world: World, room: str, groups: int) -> RoomGrowth:
    """Add groups of backfilled history between new groups: full states without edges, with fewer and fewer members."""
    state = _start(world, 40)
    tip = world.add(room, state)
    past = dict(state)
    for _ in range(groups - 1):
        yield
        if world.rng.random() < 0.5:
            state = _next(world, state)
            tip = world.add(room, state, tip)
        else:
            past = dict(past)
            if len(past) > 5:
                del past[world.rng.choice(sorted(past))]
            world.add(room, past)


def grow_redundant(world: World, room: str, groups: int) -> RoomGrowth:
    """Create groups without changes, and rows that repeat rows of the predecessor."""
    tip = world.add(room, _start(world, 8))
    for _ in range(groups - 1):
        yield
        state = world.states[tip]
        tip = world.add(room, state if world.rng.random() < 0.4 else _next(world, state, 0.1), tip)
        key = world.rng.choice(sorted(state))
        world.rows[tip][key] = world.states[tip][key]


def grow_odd_texts(world: World, room: str, groups: int) -> RoomGrowth:
    """Create unusual event types, state keys and event IDs."""
    state: State = {}
    tip = world.add(room, state)
    for number in range(groups - 1):
        yield
        key = (world.rng.choice(ODD), world.rng.choice(ODD))
        state = state | {key: f"{world.rng.choice(ODD)}{number}"}
        tip = world.add(room, state, tip)


def grow_across_rooms(world: World, room: str, groups: int) -> RoomGrowth:
    """Create chains that start in another room."""
    for _ in range(groups):
        base = world.rng.choice(sorted(world.groups)) if world.groups else None
        world.add(room, _next(world, world.states[base] if base else _start(world, 3)), base)
        yield


def grow_with_gaps(world: World, room: str, groups: int) -> RoomGrowth:
    """Create IDs with gaps, as failed transactions do."""
    for _ in grow_chain(world, room, groups):
        world.next_id += world.rng.randrange(50)
        yield


def grow_single_group(world: World, room: str, groups: int) -> RoomGrowth:
    """Create a room with one group."""
    world.add(room, _start(world, world.rng.randrange(5)))
    yield


KINDS: list[Callable[[World, str, int], RoomGrowth]] = [
    grow_chain, grow_forks, grow_backfilled, grow_redundant, grow_odd_texts, grow_across_rooms, grow_with_gaps,
    grow_single_group,
]  # fmt: skip


def begin_rooms(world: World, kinds: list[Callable[[World, str, int], RoomGrowth]], groups: int) -> list[RoomGrowth]:
    """Return a room of each kind for :func:`grow_rooms`, each with up to ``groups`` groups."""
    return [kind(world, f"!{number}:it's.example", groups) for number, kind in enumerate(kinds)]


def grow_rooms(world: World, rooms: list[RoomGrowth], groups: int) -> None:
    """Add about ``groups`` groups to random rooms. Remove complete rooms from the list."""
    while rooms and groups > 0:
        room = world.rng.choice(rooms)
        groups -= 1
        if next(room, rooms) is rooms:
            rooms.remove(room)


def purge(world: World, share: float, retained: set[int]) -> None:
    """Remove groups as an incomplete purge does: it leaves the edges to them, and the rows of some of them.

    Their descendants then resolve to less state.
    """
    for group in sorted(world.groups.keys() - retained):
        if world.rng.random() < share:
            del world.groups[group]
            world.edges.pop(group, None)
            if world.rng.random() < 0.7:
                del world.rows[group]


def resolve_state(edges: dict[int, int], rows: dict[int, State], group: int) -> State:
    """Return the state of ``group``: the merged rows of its chain, in which the nearest group wins."""
    state: State = {}
    node: int | None = group
    while node is not None:
        state = rows.get(node, {}) | state
        node = edges.get(node)
    return state


@st.composite
def worlds(draw: st.DrawFn, max_kinds: int, groups_a_room: int, max_groups: int) -> World:
    """Draw rooms of some kinds, in some cases with purged groups."""
    world = World(random.Random(draw(st.integers(0, 2**32))))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=max_kinds))
    grow_rooms(world, begin_rooms(world, kinds, groups_a_room), draw(st.integers(1, max_groups)))
    purge(world, draw(st.sampled_from([0, 0, 0.1])), set())
    return world
