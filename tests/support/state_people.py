"""Users in a few rooms of a real homeserver that often change the rooms' state."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg

from sample.client import ADMIN, Client, q
from sample.homeserver import Synapse
from sample.traffic.moderation import delete_room, purge_history

ROOMS, PEOPLE, CHANGES = 4, 12, 130


@dataclass
class People:
    """``rooms``: their rooms. ``said``: pairs of room and event since their first message."""

    dsn: str
    clients: list[Client]
    admin: Client
    rooms: list[str]
    chance: random.Random
    said: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def moved_in(cls, hs: Synapse, chance: random.Random) -> "People":
        """New ones, in new rooms that have changed often."""
        admin = hs.register("admin", admin=True)
        clients = [hs.register(f"user{number}") for number in range(PEOPLE)]
        people = cls(hs.dsn, clients, admin, [], chance)
        for _ in range(ROOMS):
            people.rooms.append(admin.create_room(preset="public_chat"))
            for client in clients:
                client.join(people.rooms[-1])
        for room in people.rooms:
            for _ in range(CHANGES):
                people._do_something(room)
        people.said.clear()
        return people

    def at(self, hs: Synapse) -> "People":
        """The same people, of the homeserver that was started again."""
        admin, *clients = (
            Client(hs.connection, one.user_id, one.token, one.device_id, one.password)
            for one in (self.admin, *self.clients)
        )
        return replace(self, clients=clients, admin=admin)

    @contextmanager
    def talking(self) -> Iterator[None]:
        """They go on until the context ends, in all rooms that are there."""
        quiet = threading.Event()
        failures: list[Exception] = []

        def go_on() -> None:
            try:
                while not quiet.wait(0.05):
                    self._do_something(self.chance.choice(self.rooms[:-1]))
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(error)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            quiet.set()
            thread.join()
        assert failures == []

    def purge(self) -> None:
        """Delete the history of the first room, but for the latest of it."""
        room, last = next(one for one in reversed(self.said) if one[0] == self.rooms[0])
        purge_history(self.admin, room, last)

    def delete(self, room: str) -> None:
        """Delete a room with all of its events."""
        delete_room(self.admin, room, {"purge": True})

    def states(self) -> dict[str, frozenset[str]]:
        """The state at each event that has one, from the homeserver."""
        with psycopg.connect(self.dsn) as connection:
            events = connection.execute(
                "select room_id, event_id from events where room_id = any(%s) and not outlier", [self.rooms]
            ).fetchall()
        found = {}
        for room, event in events:
            path = f"{ADMIN}/v1/rooms/{q(room)}/context/{q(event)}"
            told = self.admin.call("GET", path, params={"limit": "0"})
            found[event] = frozenset(one["event_id"] for one in told["state"])
        return found

    def _do_something(self, room: str) -> None:
        who = self.chance.choice(self.clients)
        match self.chance.randrange(5):
            case 0:
                event = who.say(room, "and another thing")
            case 1:
                who.leave(room)
                who.join(room)
                event = who.say(room, "here again")
            case 2:
                content = {"membership": "join", "displayname": f"once {self.chance.random()}"}
                event = who.set_state(room, "m.room.member", content, who.user_id)
            case _:
                event = self.admin.set_state(room, "m.room.topic", {"topic": str(self.chance.random())})
        self.said.append((room, event))
