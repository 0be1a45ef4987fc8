"""Generate the state of synthetic rooms of realistic sizes from a seed."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

Tables = tuple[pa.Table, pa.Table, pa.Table]

ROOM = "!room:example.org"

STATE_TABLES = """
CREATE TABLE state_groups (id bigint PRIMARY KEY, room_id text NOT NULL, event_id text NOT NULL);
CREATE TABLE state_group_edges (state_group bigint NOT NULL, prev_state_group bigint NOT NULL);
CREATE UNIQUE INDEX ON state_group_edges (state_group, prev_state_group);
CREATE INDEX ON state_group_edges (prev_state_group);
CREATE TABLE state_groups_state (
    state_group bigint NOT NULL, room_id text NOT NULL, type text NOT NULL, state_key text NOT NULL,
    event_id text NOT NULL
);
CREATE INDEX ON state_groups_state (state_group, type, state_key);
CREATE INDEX ON state_groups (room_id);
CREATE TABLE state_groups_pending_deletion (
    sequence_number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, state_group bigint NOT NULL UNIQUE,
    insertion_ts bigint NOT NULL
);
CREATE TABLE schema_version (version integer NOT NULL, upgraded boolean NOT NULL);
INSERT INTO schema_version VALUES (94, false);
CREATE TABLE applied_schema_deltas (version integer NOT NULL, file text NOT NULL);
"""
"""Synapse's tables of room state with their indexes, and the tables of the schema version."""

_CHAIN = 100


@dataclass(frozen=True)
class Shape:
    """Parameters of a room. The shares are shares of its state groups."""

    groups: int
    members: int
    """Initial members."""
    joins: float = 0.1
    """Share that adds a member. The other groups change an existing key."""
    active: float = 1.0
    """Share of the keys that change."""
    forks: float = 0.0
    """Share whose predecessor is not the latest group."""
    merges: float = 0.0
    """Share that resolves two forward extremities."""
    backfilled: float = 0.0
    """Share of backfilled full states, without a predecessor."""
    resets: float = 0.0
    """Share that loses keys. These groups are stored in full."""

    def times(self, scale: float) -> Shape:
        """Return the shape with ``scale`` times as many groups."""
        return replace(self, groups=max(1, int(scale * self.groups)))


SHAPES = {
    "one room of 40,000 groups": Shape(40_000, 3_000, joins=0.3, active=0.5, forks=0.02, merges=0.02, resets=0.0003),
    "federated, 20,000 members": Shape(6_000, 20_000, joins=0.2, forks=0.15, merges=0.14, resets=0.001),
    "calm, with backfill": Shape(5_000, 200, joins=0.1, active=0.3, backfilled=0.02),
    "linear, 20,000 members": Shape(10_000, 20_000, joins=0.2),
    "many forks": Shape(5_000, 300, joins=0.2, forks=0.6, merges=0.5, resets=0.01),
    "backfilled": Shape(4_000, 500, joins=0.3, backfilled=0.2),
}
LARGE = Shape(60_000, 12_000, joins=0.2, active=0.5, forks=0.02, merges=0.02, resets=0.0003)
"""About ten million rows."""
SMALL = Shape(150, 20, joins=0.3, forks=0.05, merges=0.05, backfilled=0.02)


@dataclass
class _Extremity:
    """A forward extremity: its state group, the group's state, and the length of its chain."""

    group: int
    state: dict[int, int]
    nodes: int


@dataclass
class _Columns:
    ids: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    row_groups: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("i"))
    events: array[int] = field(default_factory=lambda: array("i"))


def room(shape: Shape, seed: int) -> Tables:
    """Return ``state_groups``, ``state_group_edges`` and ``state_groups_state`` of one room."""
    rng = random.Random(seed)  # noqa: S311
    columns = _Columns()
    event = keys = shape.members
    start = {key: key for key in range(shape.members)}
    ends = [_add_group(columns, 1, start, None)]
    past = dict(start)
    for group in range(2, shape.groups + 1):
        chance = rng.random()
        end = rng.choice(ends) if rng.random() < shape.forks else ends[-1]
        if chance < shape.backfilled:
            for _ in range(rng.randrange(3)):
                past.pop(rng.choice(list(past)), None) if len(past) > 5 else None
            _add_group(columns, group, past, None)
            continue
        if chance < shape.backfilled + shape.resets:
            state = dict(end.state)
            for _ in range(rng.randint(1, 5)):
                state.pop(rng.choice(list(state)), None)
            ends[ends.index(end)] = _add_group(columns, group, state, None)
            continue
        if len(ends) > 1 and rng.random() < shape.merges:
            other = rng.choice([extremity for extremity in ends if extremity is not end])
            state = _merge_states(end.state, other.state, rng)
            ends.remove(end)
            ends.remove(other)
        else:
            state = end.state
            if rng.random() < shape.forks and len(ends) < 8:
                state = dict(state)
            else:
                ends.remove(end)
            if rng.random() < shape.joins:
                key, keys = keys, keys + 1
            else:
                key = rng.randrange(max(1, int(shape.active * keys)))
            state = dict(state) if any(extremity.state is state for extremity in ends) else state
            state[key] = event
            event += 1
            if end.nodes < _CHAIN:
                _add_row(columns, group, key, state[key])
                columns.ids.append(group)
                columns.edges.append((group, end.group))
                ends.append(_Extremity(group, state, end.nodes + 1))
                continue
        ends.append(_add_group(columns, group, state, end))
    return _tables(columns)


def _merge_states(state: dict[int, int], other: dict[int, int], rng: random.Random) -> dict[int, int]:
    """Return ``state`` with a few entries of ``other``, and with all entries that are newer in ``other``."""
    merged = dict(state)
    merged.update((key, other[key]) for key in rng.sample(list(other), min(5, len(other))))
    newer = [key for key, value in other.items() if value > merged.get(key, -1)]
    merged.update((key, other[key]) for key in newer)
    return merged


def _add_row(columns: _Columns, group: int, key: int, event: int) -> None:
    columns.row_groups.append(group)
    columns.keys.append(key)
    columns.events.append(event)


def _add_group(columns: _Columns, group: int, state: dict[int, int], prev: _Extremity | None) -> _Extremity:
    columns.ids.append(group)
    base: dict[int, int] = {}
    nodes = 1
    if prev and prev.state is not state and prev.nodes < _CHAIN and prev.state.keys() <= state.keys():
        columns.edges.append((group, prev.group))
        base, nodes = prev.state, prev.nodes + 1
    for key, event in state.items():
        if base.get(key) != event:
            _add_row(columns, group, key, event)
    return _Extremity(group, state, nodes)


def _tables(columns: _Columns) -> Tables:
    keys, events = np.frombuffer(columns.keys, np.int32), np.frombuffer(columns.events, np.int32)
    members = pa.array([f"@user{key}:example.org" for key in range(int(keys.max()) + 1)])
    names = pa.array([f"$event{event}" for event in range(int(events.max()) + 1)])
    edges = np.array(columns.edges, np.int64).reshape(-1, 2)
    return (
        pa.table({"id": pa.array(columns.ids, pa.int64()), "room_id": [ROOM] * len(columns.ids)}),
        pa.table({"state_group": edges[:, 0], "prev_state_group": edges[:, 1]}),
        pa.table(
            {
                "state_group": np.frombuffer(columns.row_groups, np.int64),
                "type": pa.repeat("m.room.member", len(keys)),
                "state_key": members.take(pa.array(keys)),
                "event_id": names.take(pa.array(events)),
            }
        ),
    )
