"""Load on two federating homeservers from many threads, through every process of the first, until it is stopped.

Each act is one thing that people, moderators or administrators do. Acts are seeded; what comes between them is not.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from sample.client import ADMIN, V3, Client, MatrixError, q
from sample.homeserver import Synapse, homeserver
from sample.processes import free_ports
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

LOCAL, REMOTE = "here.example", "there.example"
LINK_DOWN_SECONDS = 8.0
PAUSE_SECONDS = 0.05


@contextmanager
def federation(server: EmbeddedServer, folder: Path) -> Iterator[tuple[Synapse, Synapse]]:
    """LOCAL with workers and REMOTE without, which talk to each other, on new databases ``here`` and ``there``."""
    peers = dict(zip((LOCAL, REMOTE), free_ports(2), strict=True))
    for name in ("here", "there"):
        server.create_database(name)
    with (
        homeserver(folder / "here", server_name=LOCAL, dsn=server.dsn("here"), peers=peers) as local,
        homeserver(folder / "there", server_name=REMOTE, dsn=server.dsn("there"), peers=peers, workers=False) as remote,
    ):
        yield local, remote


@dataclass
class Load:
    """People on ``local`` and ``remote``; counts of what they did and of what was refused, by act."""

    local: Synapse
    remote: Synapse
    seed: int
    pause: float = PAUSE_SECONDS
    done: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    broken: list[BaseException] = field(default_factory=list)
    rooms: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    quiet: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.admin = self.local.register("ada", admin=True)
        self.people = [self.local.register(f"local{number}") for number in range(6)]
        self.strangers = [self.remote.register(f"remote{number}") for number in range(2)]
        self.open_room(random.Random(self.seed))
        self.meet_elsewhere(random.Random(self.seed))

    def reconnect(self, local: Synapse, remote: Synapse) -> None:
        """Continue with the same people after both homeservers were restarted."""
        self.local, self.remote = local, remote
        for clients, of in (([self.admin, *self.people], local), (self.strangers, remote)):
            for client in clients:
                client.connection = of.connection
        self.seed += 1
        self.quiet.clear()

    @contextmanager
    def running(self) -> Iterator[None]:
        """All acts at once, again and again."""
        acts: list[Callable[[random.Random], None]] = [
            self.talk, self.talk, self.talk, self.change_state, self.come_and_go, self.redact, self.look_after_oneself,
            self.open_room, self.meet_elsewhere, self.talk_elsewhere, self.moderate, self.upgrade, self.cut_the_link,
        ]  # fmt: skip
        threads = [threading.Thread(target=self._again, args=(number, act)) for number, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.quiet.set()
            for thread in threads:
                thread.join()

    def talk(self, chance: random.Random) -> None:
        """A message through any process, answered by a reaction."""
        room = chance.choice(self.rooms[-8:] + self.shared[-3:])
        event = self._someone(chance).say(room, f"words {chance.random()}", via=self._process(chance))
        self.said.append((room, event))
        if chance.random() < 0.3:
            relation = {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": "+1"}}
            self._someone(chance).send(room, "m.reaction", relation, via=self._process(chance))

    def change_state(self, chance: random.Random) -> None:
        """A topic, a visibility or a name, also at the same time as others change it."""
        room = chance.choice(self.rooms[-8:])
        visible = {"history_visibility": chance.choice(["shared", "joined", "invited", "world_readable"])}
        self.people[0].set_state(room, "m.room.topic", {"topic": str(chance.random())}, via=self._process(chance))
        self.people[0].set_state(room, "m.room.history_visibility", visible, via=self._process(chance))
        if chance.random() < 0.1:
            self._someone(chance).set_display_name(f"name {chance.random()}")

    def come_and_go(self, chance: random.Random) -> None:
        """A user leaves a room, perhaps forgets it, and joins it again."""
        room, guest = chance.choice(self.rooms[-8:]), chance.choice(self.people[1:])
        guest.leave(room)
        if chance.random() < 0.3:
            guest.forget(room)
        guest.join(room)

    def redact(self, chance: random.Random) -> None:
        """A message of anybody is redacted by the room's creator."""
        room, event = chance.choice(self.said)
        self.people[0].redact(room, event)

    def look_after_oneself(self, chance: random.Random) -> None:
        """Receipts, account data, tags, devices, messages to devices."""
        someone, (room, event) = self._someone(chance), chance.choice(self.said[-50:])
        someone.receipt(room, event, chance.choice(["m.read", "m.read.private"]))
        someone.set_account_data(f"org.example.{chance.randint(0, 3)}", {"value": chance.random()})
        someone.set_account_data("org.example.room", {"value": chance.random()}, room)
        other = chance.choice([*self.people, *self.strangers])
        path = f"{V3}/sendToDevice/org.example/t{chance.random()}"
        someone.call("PUT", path, {"messages": {other.user_id: {"*": {"value": 1}}}})
        device = self.local.login(someone, f"DEVICE{chance.randint(0, 5)}", "another one")
        if chance.random() < 0.5:
            device.call("POST", f"{V3}/logout")

    def open_room(self, chance: random.Random) -> None:
        """A room here that everybody joins."""
        version = chance.choice(["6", "10", "11", "12"])
        room = self.people[0].create_room(preset="public_chat", room_version=version)
        for guest in self.people[1:]:
            guest.join(room)
        self.rooms.append(room)
        self.said.append((room, self.people[0].say(room, "welcome")))
        self._rest(5)

    def meet_elsewhere(self, chance: random.Random) -> None:
        """A room there with history, which ours join late and read backwards: outliers, then backfill."""
        host, friend = self.strangers
        room = host.create_room(preset="public_chat", room_version=chance.choice(["10", "11", "12"]))
        friend.join(room)
        for number in range(15):
            event = host.say(room, f"before you came {number}")
            if number % 5 == 0:
                friend.set_display_name(f"name {chance.random()}")
        for guest in self.people[:3]:
            guest.join(room, params={"server_name": self.remote.server_name})
        self.shared.append(room)
        self._read_backwards(self.people[0], room)
        if len(self.shared) % 3 == 2:
            # Purged here but not there: read again, its events come back under other ids.
            event = self.people[0].say(room, "nothing before this")
            self._purge(room, event)
            self._read_backwards(self.people[1], room)
        self._rest(5)

    def talk_elsewhere(self, chance: random.Random) -> None:
        """Messages of theirs in rooms of both, a kick and a return."""
        room = chance.choice(self.shared)
        host, friend = self.strangers
        for _ in range(3):
            chance.choice(self.strangers).say(room, f"from afar {chance.random()}")
        if chance.random() < 0.2:
            host.moderate("kick", room, friend)
            friend.join(room)

    def moderate(self, chance: random.Random) -> None:
        """History is purged, a room deleted, a user erased or deactivated: one of them."""
        self._rest(4)
        kind = chance.choice(["history", "room", "user"])
        if kind == "history":
            room, event = chance.choice(self.said[-100:])
            self._purge(room, event)
        elif kind == "room" and len(self.rooms) > 3:
            room = self.rooms.pop(0)
            answer = self.admin.call("DELETE", f"{ADMIN}/v2/rooms/{q(room)}", {"purge": True, "block": False})
            self._finished(f"{ADMIN}/v2/rooms/delete_status/{q(answer['delete_id'])}")
        else:
            leaving = self.local.register(f"leaving{time.monotonic_ns()}")
            room = self.rooms[-1]
            leaving.join(room)
            for number in range(5):
                leaving.say(room, f"remember me {number}")
            erase = chance.random() < 0.6
            self.admin.call("POST", f"{ADMIN}/v1/deactivate/{q(leaving.user_id)}", {"erase": erase})

    def upgrade(self, _: random.Random) -> None:
        """A room is replaced by one of another version."""
        self._rest(12)
        room = self.rooms[-1]
        path = f"{V3}/rooms/{q(room)}/upgrade"
        replacement = str(self.people[0].call("POST", path, {"new_version": "11"})["replacement_room"])
        self.people[1].join(replacement)

    def cut_the_link(self, chance: random.Random) -> None:
        """The other homeserver is unreachable for a while, and this one continues to send."""
        self._rest(20)
        for signaled in (signal.SIGSTOP, signal.SIGCONT):
            for pid in self.remote.processes.values():
                os.kill(pid, signaled)
            if signaled is signal.SIGSTOP:
                self._rest(LINK_DOWN_SECONDS)
        # A homeserver that is reachable again gets the events that it missed.
        self.strangers[0].say(chance.choice(self.shared), "back again")

    def _again(self, number: int, act: Callable[[random.Random], None]) -> None:
        chance = random.Random(f"{self.seed}:{number}")
        name = act.__name__
        while not self.quiet.is_set():
            try:
                act(chance)
                self.done[name] = self.done.get(name, 0) + 1
            except (MatrixError, httpx.TransportError):
                # Rooms go away, people are not in them any more, the other homeserver is slow: such is life.
                self.refused[name] = self.refused.get(name, 0) + 1
            except Exception as error:  # noqa: BLE001 - reported by the test
                self.broken.append(error)
                return
            self._rest(self.pause)

    def _purge(self, room: str, event: str) -> None:
        body = {"purge_up_to_event_id": event, "delete_local_events": True}
        answer = self.admin.call("POST", f"{ADMIN}/v1/purge_history/{q(room)}", body)
        self._finished(f"{ADMIN}/v1/purge_history_status/{q(answer['purge_id'])}")

    def _finished(self, path: str) -> None:
        while not self.quiet.is_set() and self.admin.call("GET", path)["status"] not in ("complete", "failed"):
            self._rest(0.3)

    def _read_backwards(self, client: Client, room: str) -> None:
        token = None
        for _ in range(3):
            params = {"dir": "b", "limit": "10"} | ({"from": token} if token else {})
            token = client.call("GET", f"{V3}/rooms/{q(room)}/messages", params=params).get("end")
            if not token:
                return

    def _someone(self, chance: random.Random) -> Client:
        return chance.choice(self.people)

    def _process(self, chance: random.Random) -> str:
        return chance.choice(sorted(self.local.urls))

    def _rest(self, seconds: float) -> None:
        self.quiet.wait(seconds)
