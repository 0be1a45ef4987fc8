"""Add and delete state groups during a compression, with the statements of Synapse.

Like Synapse's, the transactions are REPEATABLE READ, and are retried up to five times after serialization failures.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.support.state_database import all_states
from tests.support.state_rooms import SNAPSHOT_AFTER, State

TRIES = 5
DELAY_SECONDS = 2.0
"""Time between marking a group and deleting it, longer than any transaction. Synapse waits ten minutes."""

_HOPS = """
with recursive state(state_group) as (values (%s::bigint) union all
  select prev_state_group from state_group_edges e, state s where s.state_group = e.state_group)
select count(*) from state
"""
_STATE = """
with recursive sgs(state_group) as (values (%s::bigint) union all
  select prev_state_group from state_group_edges e, sgs s where s.state_group = e.state_group)
select distinct on (type, state_key) type, state_key, event_id from state_groups_state
where state_group in (select state_group from sgs) order by type, state_key, state_group desc
"""

Session = psycopg.Connection[Any]


@dataclass
class Traffic:
    """Threads that change the database ``dsn``.

    ``states``: the resolved state of each group. ``wrong``: descriptions of failures and of incorrectly read state.
    """

    dsn: str
    rng: random.Random
    rooms: list[str]
    states: dict[int, State]
    added: int = 0
    deleted: int = 0
    retried: int = 0
    wrong: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def progress(self) -> str:
        """Return the numbers of changed groups and of retried transactions, as text."""
        return f"{self.added} groups added, {self.deleted} deleted, {self.retried} transactions retried"

    def _run(self, work: Callable[[Session], None]) -> None:
        with psycopg.connect(self.dsn) as session:
            session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while not self._stop.is_set():
                for attempt in range(TRIES + 1):
                    try:
                        with session.transaction():
                            work(session)
                        break
                    except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
                        self.retried += 1
                        if attempt == TRIES:
                            self.wrong.append(f"{work.__name__}: {error}")
                time.sleep(self.rng.uniform(0, 0.1))

    def finish(self) -> None:
        """Delete all marked groups."""
        with psycopg.connect(self.dsn, autocommit=True) as session:
            while session.execute("select from state_groups_pending_deletion limit 1").fetchall():
                session.execute("update state_groups_pending_deletion set insertion_ts = 1 where insertion_ts <> 1")
                session.execute(
                    "delete from state_groups_pending_deletion where not state_group in (select id from state_groups)"
                )
                with session.transaction():
                    self.delete(session)

    def add(self, session: Session) -> None:
        """Add a state group: a delta of one of the room's latest groups, or a full state after the longest chain."""
        room = self.rng.choice(self.rooms)
        latest = session.execute(
            "select id from state_groups where room_id = %s order by id desc limit 20", [room]
        ).fetchall()
        if not latest:
            return
        (prev,) = self.rng.choice(latest)
        if not session.execute("select id from state_groups where id = %s for key share", [prev]).fetchall():
            return
        session.execute(
            "update state_groups_pending_deletion set sequence_number = default, insertion_ts = %s"
            " where state_group = %s",
            [_now(), prev],
        )
        (next_id,) = session.execute("select nextval('state_group_id_seq')").fetchone() or (0,)
        group = int(next_id)
        change = {("m.room.member", f"@{group}:example.org"): f"$traffic{group}"}
        state = self._read_state(session, prev) | change
        hops = session.execute(_HOPS, [prev]).fetchone()
        assert hops
        is_delta = hops[0] < SNAPSHOT_AFTER
        session.execute("insert into state_groups values (%s, %s, %s)", [group, room, f"$traffic{group}"])
        if is_delta:
            session.execute("insert into state_group_edges values (%s, %s)", [group, prev])
        _insert(session, group, room, change if is_delta else state)
        session.execute("insert into event_to_state_groups values (%s, %s)", [f"$traffic{group}", group])
        self.states[group] = state
        self.added += 1

    def purge(self, session: Session) -> None:
        """Purge events of some old groups, and mark the groups that no event uses."""
        room = self.rng.choice(self.rooms)
        old = session.execute("select id from state_groups where room_id = %s order by id limit 30", [room]).fetchall()
        selected = self.rng.sample([group for (group,) in old], min(3, len(old)))
        session.execute("delete from event_to_state_groups where state_group = any(%s)", [selected])
        session.execute(
            "insert into state_groups_pending_deletion (state_group, insertion_ts) select id, %s from state_groups"
            " where id = any(%s) and not exists (select from event_to_state_groups where state_group = id)"
            " on conflict (state_group) do nothing",
            [_now(), selected],
        )
        time.sleep(0.4)

    def delete(self, session: Session) -> None:
        """Delete groups that were marked ``DELAY_SECONDS`` ago. Store their deltas in full."""
        due = session.execute(
            "select state_group, sequence_number from state_groups_pending_deletion where insertion_ts < %s limit 5",
            [_now() - 1000 * DELAY_SECONDS],
        ).fetchall()
        groups = dict(due)
        session.execute("select id from state_groups where id = any(%s) for update", [list(groups)])
        marked = dict(
            session.execute(
                "select state_group, sequence_number from state_groups_pending_deletion where state_group = any(%s)",
                [list(groups)],
            ).fetchall()
        )
        used = {
            group
            for (group,) in session.execute(
                "select state_group from event_to_state_groups where state_group = any(%s)", [list(groups)]
            )
        }
        removed = [group for group, number in groups.items() if marked.get(group) == number and group not in used]
        children = session.execute(
            "select e.state_group, g.room_id from state_group_edges e join state_groups g on g.id = e.state_group"
            " where prev_state_group = any(%s) and not state_group = any(%s)",
            [removed, removed],
        ).fetchall()
        for child, room in children:
            state = self._read_state(session, child)
            session.execute("delete from state_groups_state where state_group = %s", [child])
            session.execute("delete from state_group_edges where state_group = %s", [child])
            _insert(session, child, room, state)
        for table, column in (
            ("state_groups_state", "state_group"), ("state_group_edges", "state_group"), ("state_groups", "id"),
            ("state_groups_pending_deletion", "state_group"),
        ):  # fmt: skip
            session.execute(f"delete from {table} where {column} = any(%s)".encode(), [removed])
        self.deleted += len(removed)

    def _read_state(self, session: Session, group: int) -> State:
        session.execute("set local enable_seqscan = off")
        state = {(kind, key): event for kind, key, event in session.execute(_STATE, [group])}
        if state != self.states[group]:
            difference = state.items() ^ self.states[group].items()
            self.wrong.append(f"state group {group} has a wrong state; difference: {difference}")
        return state


@contextmanager
def traffic(dsn: str, rng: random.Random, rooms: list[str]) -> Iterator[Traffic]:
    """Change ``rooms`` in threads until the context ends."""
    changes = Traffic(dsn, rng, rooms, all_states(dsn))
    threads = [
        threading.Thread(target=changes._run, args=[work], daemon=True)
        for work in (changes.add, changes.purge, changes.delete)
    ]
    for thread in threads:
        thread.start()
    try:
        yield changes
    finally:
        changes._stop.set()
        for thread in threads:
            thread.join()


def delete_room(dsn: str, room: str) -> None:
    """Delete the state of a deleted room as Synapse does. Retry after serialization failures."""
    with psycopg.connect(dsn) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for attempt in range(TRIES + 1):
            try:
                with session.transaction():
                    of_room = "where state_group in (select id from state_groups where room_id = %s)"
                    session.execute(f"delete from state_group_edges {of_room}".encode(), [room])
                    session.execute(f"delete from state_groups_state {of_room}".encode(), [room])
                    session.execute("delete from state_groups where room_id = %s", [room])
                return
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                if attempt == TRIES:
                    raise


def _insert(session: Session, group: int, room: str, rows: State) -> None:
    with session.cursor() as cursor:
        cursor.executemany(
            "insert into state_groups_state values (%s, %s, %s, %s, %s)",
            [(group, room, kind, key, event) for (kind, key), event in rows.items()],
        )


def _now() -> int:
    return time.time_ns() // 1_000_000
