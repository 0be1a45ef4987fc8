"""A homeserver whose index of room state is outdated, so that Synapse deletes rows of other rooms.

The index is copied while the groups of the rooms ``purged`` are stored in full. Then a compressor stores them as
deltas, and rows of the rooms ``late`` take the places of the deleted rows. So entries of the copied index for groups of
the rooms ``purged`` point to rows of the rooms ``late``.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from sample.client import ADMIN, V3, Client, Json, MatrixError, q
from sample.homeserver import DATABASE, Synapse, homeserver
from sample.traffic.moderation import purge_history
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, find_free_port
from tests.support.reference_compressor import run_reference
from tests.support.state_rooms import State, resolve_state

States = dict[int, tuple[str, State]]
"""State group → room and state."""

PEOPLE: Final = 25
CHANGES: Final = 230
"""State changes in each purged room. Synapse stores the state in full after 100 deltas."""
_SWEEP_SECONDS: Final = 150

_VOLATILE: Final = {"unsigned", "age", "prev_content", "replaces_state"}
_INDEX: Final = "state_groups_state_type_idx"
_AS_WITH_LARGE_TABLES: Final = f"""
alter database {DATABASE} set enable_hashjoin = off;
alter database {DATABASE} set enable_mergejoin = off"""
"""With these settings, PostgreSQL reads the rows of a state group with the index, as in a large table."""


@dataclass
class StateLoss:
    """The homeserver in ``folder``.

    ``rooms``: by kind. ``first_retained``: by room, the event before which the history is purged. ``index``: path and
    content of the copied index.
    """

    folder: Path
    port: int = field(default_factory=find_free_port)
    people: list[Client] = field(default_factory=list)
    rooms: dict[str, list[str]] = field(default_factory=lambda: {"purged": [], "calm": [], "late": []})
    first_retained: dict[str, str] = field(default_factory=dict)
    index: tuple[str, bytes] = ("", b"")

    @contextmanager
    def postgres(self) -> Iterator[EmbeddedServer]:
        """Run PostgreSQL."""
        options = ["fsync=off", "synchronous_commit=off", "autovacuum=off"]
        with embedded_postgres.run_server(self.folder / "postgres", self.port, options) as server:
            server.create_database(DATABASE)
            yield server

    @contextmanager
    def synapse(self, server: EmbeddedServer) -> Iterator[Synapse]:
        """Run Synapse."""
        with homeserver(self.folder / "synapse", dsn=server.dsn(DATABASE), workers=False) as hs:
            for client in self.people:
                client.connection = hs.connection
            yield hs

    def live(self, server: EmbeddedServer) -> None:
        """Fill the rooms, copy the index, compress, and fill further rooms."""
        execute(server.dsn(DATABASE), _AS_WITH_LARGE_TABLES)
        with self.synapse(server) as hs:
            self.people = [hs.register("ada", admin=True), *(hs.register(f"user{n}") for n in range(PEOPLE))]
            for kind in ("purged", "purged", "calm"):
                self._open_room(kind)
            for number in range(CHANGES):
                for room in self.rooms["purged"]:
                    self._change_topic(room, number)
        execute(hs.dsn, "checkpoint")
        (path,) = execute(hs.dsn, f"select pg_relation_filepath('{_INDEX}')")[0]
        self.index = path, (self.folder / "postgres" / path).read_bytes()
        run_reference(hs.dsn, 1000, "100,50,25", 1000)
        execute(hs.dsn, "vacuum (analyze, index_cleanup on) state_groups_state")
        with self.synapse(server):
            for _ in range(4):
                room = self._open_room("late")
                for number in range(20):
                    self._change_topic(room, number)
                    self.people[number].say(room, f"message {number}")
            for room in self.rooms["purged"]:
                self.first_retained[room] = self.people[3].say(room, "nothing before this")
            for room in self.all_rooms():
                for number in range(3):
                    self.people[number].say(room, f"the end {number}")
        execute(hs.dsn, "vacuum (analyze) state_groups_state")

    def restore_old_index(self) -> None:
        """Overwrite the index with the copy, while the server is stopped."""
        path, content = self.index
        (self.folder / "postgres" / path).write_bytes(content)

    def all_rooms(self) -> list[str]:
        """Return all rooms."""
        return [room for rooms in self.rooms.values() for room in rooms]

    def purge(self, hs: Synapse, room: str) -> None:
        """Purge the history of a room, and wait until Synapse's own loop has deleted the state groups."""
        purge_history(self.people[0], room, self.first_retained[room])
        execute(hs.dsn, "update state_groups_pending_deletion set insertion_ts = insertion_ts - 3600000")
        deadline = time.monotonic() + _SWEEP_SECONDS
        while execute(hs.dsn, "select 1 from state_groups_pending_deletion"):
            assert time.monotonic() < deadline
            time.sleep(1)

    def answers(self) -> dict[str, Json]:
        """Return Synapse's responses about events of all rooms, by request; errors with their code."""
        answers = {}
        for room in self.all_rooms():
            path = f"{V3}/rooms/{q(room)}"
            page = self._get(f"{path}/messages", {"dir": "b", "limit": "4"})
            answers[f"messages {room}"] = page
            answers[f"state {room}"] = self._get(f"{ADMIN}/v1/rooms/{q(room)}/state", {})
            for event in page.get("chunk", []):
                # The earlier events of the purged rooms are deleted.
                limit = "0" if room in self.rooms["purged"] else "2"
                context = self._get(f"{path}/context/{q(event['event_id'])}", {"limit": limit})
                answers[f"context {event['event_id']}"] = context
        for room in self.rooms["late"]:
            page = self._get(f"{V3}/rooms/{q(room)}/messages", {"dir": "b", "limit": "100"})
            answers[f"all messages {room}"] = page
            for event in page.get("chunk", [])[::5]:
                context = self._get(f"{V3}/rooms/{q(room)}/context/{q(event['event_id'])}", {"limit": "0"})
                answers[f"context {event['event_id']}"] = context
        return answers

    def _get(self, path: str, params: dict[str, str]) -> Json:
        try:
            response = self.people[0].call("GET", path, params=params)
        except MatrixError as error:
            return {"error": error.errcode}
        return {name: _without_volatile(value) for name, value in response.items() if name not in ("start", "end")}

    def _open_room(self, kind: str) -> str:
        room = self.people[0].create_room(preset="public_chat", name=kind)
        for guest in self.people[1:]:
            guest.join(room)
        self.rooms[kind].append(room)
        return room

    def _change_topic(self, room: str, number: int) -> None:
        self.people[0].set_state(room, "m.room.topic", {"topic": str(number)})
        if number % 20 == 0:
            self.people[number % PEOPLE].say(room, f"topic {number}")


def _without_volatile(value: Any) -> Any:
    """Return events without fields that depend on the clock or on Synapse's caches, ordered by event ID."""
    if isinstance(value, dict):
        return {name: field_value for name, field_value in value.items() if name not in _VOLATILE}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return sorted(map(_without_volatile, value), key=lambda event: str(event.get("event_id")))
    return value


def execute(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    """Execute and commit a statement; return its rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def read_states(dsn: str) -> States:
    """Return the room and the state of each state group, read without indexes."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off")
        edges: dict[int, int] = dict(
            connection.execute("select state_group, prev_state_group from state_group_edges").fetchall()
        )
        deltas: dict[int, State] = {}
        for group, type_, key, event in connection.execute(
            "select state_group, type, state_key, event_id from state_groups_state"
        ):
            deltas.setdefault(group, {})[type_, key] = event
        rooms = connection.execute("select id, room_id from state_groups").fetchall()
    return {group: (room, resolve_state(edges, deltas, group)) for group, room in rooms}
