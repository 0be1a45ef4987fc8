"""Seeded faults of all kinds in a copy of Synapse's database, each with the finding that it must cause."""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from tests.support import derived_fault_kinds, fault_kinds, inserted_fault_kinds
from tests.support.fault_kinds import Kind
from tests.support.state_faults import Fault, StateFaults

KINDS: Final = fault_kinds.KINDS | inserted_fault_kinds.KINDS | derived_fault_kinds.KINDS
STATE_KINDS: Final = 8

Finding = tuple[str, str | None, str]
"""Check, room, subject."""


def plant(connection: psycopg.Connection[Any], seed: int, per_kind: int) -> list[Fault]:
    """Plant up to ``per_kind`` faults of each kind; return them. No two concern the same or neighboring events."""
    connection.execute("set session_replication_role = replica")  # disables foreign keys
    state = StateFaults(connection, random.Random(seed))
    faults = list(state.plant(STATE_KINDS * per_kind))
    neighbors = _find_neighbors(connection)
    used: set[tuple[str, object]] = set()
    for event in state.moved_events:
        used |= {("", name) for name in (event, *neighbors[event])}
    hiding: dict[str, set[str]] = defaultdict(set)
    hidden: dict[str, set[str]] = defaultdict(set)
    for name, kind in KINDS.items():
        planted = 0
        # The seed decides the order.
        picks = f"select * from ({kind.pick}) as picks order by md5(id || other || %(seed)s), id, other"
        for row in connection.cursor(row_factory=dict_row).execute(picks.encode(), {"seed": str(seed)}).fetchall():
            # A user can be a member of several rooms.
            marks: set[tuple[str, object]] = {(kind.area, (row["room_id"], row["id"]))}
            for event in {str(row[column]) for column in ("id", "other", "latest") if column in row}:
                marks |= {(kind.area, event)} if event.startswith("$") else set()
            is_hidden = row["room_id"] in (hiding[kind.hidden_by] if kind.hidden_by else hidden[kind.hides])
            if planted == per_kind or marks & used or is_hidden:
                continue
            used |= marks
            used |= {("", near) for near in neighbors.get(row["id"], ())}
            if kind.hides:
                hiding[kind.hides].add(row["room_id"])
            if kind.hidden_by:
                hidden[kind.hidden_by].add(row["room_id"])
            planted += 1
            for statement in kind.change:
                connection.execute(statement.encode(), row)
            faults.append(Fault(name, kind.check, _format(kind, row), row["room_id"]))
    return faults


def describe(faults: Collection[Fault], findings: Collection[Finding]) -> list[str]:
    """Return a Markdown table with the numbers of planted and of found faults of each kind."""
    planted = Counter((fault.kind, fault.check) for fault in faults)
    reported = Counter((fault.kind, fault.check) for fault in find(faults, findings))
    rows = [f"| {kind} | `{check}` | {count} | {reported[kind, check]} |" for (kind, check), count in planted.items()]
    return ["| kind | check | planted | found |", "| --- | --- | --- | --- |", *rows]


def find(faults: Iterable[Fault], findings: Collection[Finding]) -> list[Fault]:
    """Return the faults that have a finding with their check, room and subject."""
    return [fault for fault in faults if (fault.check, fault.room, fault.subject) in findings]


def _find_neighbors(connection: psycopg.Connection[Any]) -> dict[str, set[str]]:
    neighbors: dict[str, set[str]] = defaultdict(set)
    for event, previous in connection.execute("select event_id, prev_event_id from event_edges"):
        neighbors[event].add(previous)
        neighbors[previous].add(event)
    return neighbors


def _format(kind: Kind, row: dict[str, Any]) -> str:
    return kind.subject.replace("{id[1:]}", str(row["id"])[1:]).format(**row)
