"""Users of a real homeserver that often change the state of a few rooms."""

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
    """The users. ``said``: pairs of room and event ID, for each event that they sent after the rooms were filled."""

    dsn: str
    clients: list[Client]
    admin: Client
    rooms: list[str]
    chance: random.Random
    said: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def moved_in(cls, hs: Synapse, chance: random.Random) -> "People":
        """Create users and rooms, and change the state of the rooms often."""
        admin = hs.register("admin", admin=True)
        clients = [hs.register(f"user{number}") for number in range(PEOPLE)]
        people = cls(hs.dsn, clients, admin, [], chance)
        for _ in range(ROOMS):
            people.rooms.append(admin.create_room(preset="public_chat"))
            for client in clients:
                client.join(people.rooms[-1])
        for room in people.rooms:
            for _ in range(CHANGES):
                people._send_event(room)
        people.said.clear()
        return people

    def at(self, hs: Synapse) -> "People":
        """Return the same users, connected to a restarted homeserver."""
        admin, *clients = (
            Client(hs.connection, item.user_id, item.token, item.device_id, item.password)
            for item in (self.admin, *self.clients)
        )
        return replace(self, clients=clients, admin=admin)

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Change the state of all rooms except the last until the context ends."""
        stop = threading.Event()
        failures: list[Exception] = []

        def send_events() -> None:
            try:
                while not stop.wait(0.05):
                    self._send_event(self.chance.choice(self.rooms[:-1]))
            except Exception as error:  # noqa: BLE001 - reported below
                failures.append(error)

        thread = threading.Thread(target=send_events)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert failures == []

    def purge(self) -> None:
        """Purge the history of the first room, up to the last event of these users."""
        room, last = next(item for item in reversed(self.said) if item[0] == self.rooms[0])
        purge_history(self.admin, room, last)

    def delete(self, room: str) -> None:
        """Delete a room with all of its events."""
        delete_room(self.admin, room, {"purge": True})

    def states(self) -> dict[str, frozenset[str]]:
        """Return the state at each event that is not an outlier, as the homeserver reports it."""
        with psycopg.connect(self.dsn) as connection:
            events = connection.execute(
                "select room_id, event_id from events where room_id = any(%s) and not outlier", [self.rooms]
            ).fetchall()
        results = {}
        for room, event in events:
            path = f"{ADMIN}/v1/rooms/{q(room)}/context/{q(event)}"
            response = self.admin.call("GET", path, params={"limit": "0"})
            results[event] = frozenset(item["event_id"] for item in response["state"])
        return results

    def _send_event(self, room: str) -> None:
        user = self.chance.choice(self.clients)
        match self.chance.randrange(5):
            case 0:
                event = user.say(room, "and another thing")
            case 1:
                user.leave(room)
                user.join(room)
                event = user.say(room, "here again")
            case 2:
                content = {"membership": "join", "displayname": f"once {self.chance.random()}"}
                event = user.set_state(room, "m.room.member", content, user.user_id)
            case _:
                event = self.admin.set_state(room, "m.room.topic", {"topic": str(self.chance.random())})
        self.said.append((room, event))
