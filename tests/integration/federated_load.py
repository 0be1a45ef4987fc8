"""Load on two federating homeservers, from many threads and through every process of the first homeserver.

Each act is one action of users, moderators or administrators. The random choices of an act are seeded; the order of
acts of different threads is not.
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
    """Run LOCAL with workers and REMOTE without workers as a federation, on new databases ``here`` and ``there``."""
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
    """Users of ``local`` and ``remote``, and the numbers of their completed and refused acts by name."""

    local: Synapse
    remote: Synapse
    seed: int
    pause: float = PAUSE_SECONDS
    done: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    broken: list[BaseException] = field(default_factory=list)
    rooms: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    quiet: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.admin = self.local.register("ada", admin=True)
        self.users = [self.local.register(f"local{number}") for number in range(6)]
        self.remote_users = [self.remote.register(f"remote{number}") for number in range(2)]
        self.open_room(random.Random(self.seed))
        self.join_remote_room(random.Random(self.seed))

    def reconnect(self, local: Synapse, remote: Synapse) -> None:
        """Continue with the same users after a restart of both homeservers."""
        self.local, self.remote = local, remote
        for clients, synapse in (([self.admin, *self.users], local), (self.remote_users, remote)):
            for client in clients:
                client.connection = synapse.connection
        self.seed += 1
        self.quiet.clear()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Repeat all acts, each in a thread of its own, until the context ends."""
        acts: list[Callable[[random.Random], None]] = [
            self.talk, self.talk, self.talk, self.change_state, self.leave_and_rejoin, self.redact, self.update_account,
            self.open_room, self.join_remote_room, self.talk_in_shared_room, self.moderate, self.upgrade,
            self.interrupt_federation,
        ]  # fmt: skip
        threads = [threading.Thread(target=self._repeat, args=(number, act)) for number, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.quiet.set()
            for thread in threads:
                thread.join()

    def talk(self, rng: random.Random) -> None:
        """Send a message through any process, and sometimes a reaction to it."""
        room = rng.choice(self.rooms[-8:] + self.shared[-3:])
        event = self._random_user(rng).say(room, f"words {rng.random()}", via=self._random_process(rng))
        self.messages.append((room, event))
        if rng.random() < 0.3:
            relation = {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": "+1"}}
            self._random_user(rng).send(room, "m.reaction", relation, via=self._random_process(rng))

    def change_state(self, rng: random.Random) -> None:
        """Set a topic, a history visibility and sometimes a display name, concurrently with other threads."""
        room = rng.choice(self.rooms[-8:])
        visible = {"history_visibility": rng.choice(["shared", "joined", "invited", "world_readable"])}
        self.users[0].set_state(room, "m.room.topic", {"topic": str(rng.random())}, via=self._random_process(rng))
        self.users[0].set_state(room, "m.room.history_visibility", visible, via=self._random_process(rng))
        if rng.random() < 0.1:
            self._random_user(rng).set_display_name(f"name {rng.random()}")

    def leave_and_rejoin(self, rng: random.Random) -> None:
        """Let a user leave a room, sometimes forget it, and join it again."""
        room, guest = rng.choice(self.rooms[-8:]), rng.choice(self.users[1:])
        guest.leave(room)
        if rng.random() < 0.3:
            guest.forget(room)
        guest.join(room)

    def redact(self, rng: random.Random) -> None:
        """Redact a message of any user as the room's creator."""
        room, event = rng.choice(self.messages)
        self.users[0].redact(room, event)

    def update_account(self, rng: random.Random) -> None:
        """Send receipts, account data and messages to devices; log a device in, and sometimes out."""
        user, (room, event) = self._random_user(rng), rng.choice(self.messages[-50:])
        user.receipt(room, event, rng.choice(["m.read", "m.read.private"]))
        user.set_account_data(f"org.example.{rng.randint(0, 3)}", {"value": rng.random()})
        user.set_account_data("org.example.room", {"value": rng.random()}, room)
        other = rng.choice([*self.users, *self.remote_users])
        path = f"{V3}/sendToDevice/org.example/t{rng.random()}"
        user.call("PUT", path, {"messages": {other.user_id: {"*": {"value": 1}}}})
        device = self.local.login(user, f"DEVICE{rng.randint(0, 5)}", "another one")
        if rng.random() < 0.5:
            device.call("POST", f"{V3}/logout")

    def open_room(self, rng: random.Random) -> None:
        """Create a local room that all local users join."""
        version = rng.choice(["6", "10", "11", "12"])
        room = self.users[0].create_room(preset="public_chat", room_version=version)
        for guest in self.users[1:]:
            guest.join(room)
        self.rooms.append(room)
        self.messages.append((room, self.users[0].say(room, "welcome")))
        self._wait(5)

    def join_remote_room(self, rng: random.Random) -> None:
        """Create a remote room with history. Local users join it later and paginate back: outliers, then backfill."""
        host, friend = self.remote_users
        room = host.create_room(preset="public_chat", room_version=rng.choice(["10", "11", "12"]))
        friend.join(room)
        for number in range(15):
            event = host.say(room, f"before you came {number}")
            if number % 5 == 0:
                friend.set_display_name(f"name {rng.random()}")
        for guest in self.users[:3]:
            guest.join(room, params={"server_name": self.remote.server_name})
        self.shared.append(room)
        self._read_backwards(self.users[0], room)
        if len(self.shared) % 3 == 2:
            # LOCAL purges the room, REMOTE does not: pagination backfills the events with other stream IDs.
            event = self.users[0].say(room, "nothing before this")
            self._purge(room, event)
            self._read_backwards(self.users[1], room)
        self._wait(5)

    def talk_in_shared_room(self, rng: random.Random) -> None:
        """Send messages of remote users to a shared room; sometimes kick a user that then joins again."""
        room = rng.choice(self.shared)
        host, friend = self.remote_users
        for _ in range(3):
            rng.choice(self.remote_users).say(room, f"from afar {rng.random()}")
        if rng.random() < 0.2:
            host.moderate("kick", room, friend)
            friend.join(room)

    def moderate(self, rng: random.Random) -> None:
        """Purge the history of a room, delete a room, or deactivate a user, sometimes with erasure."""
        self._wait(4)
        kind = rng.choice(["history", "room", "user"])
        if kind == "history":
            room, event = rng.choice(self.messages[-100:])
            self._purge(room, event)
        elif kind == "room" and len(self.rooms) > 3:
            room = self.rooms.pop(0)
            response = self.admin.call("DELETE", f"{ADMIN}/v2/rooms/{q(room)}", {"purge": True, "block": False})
            self._wait_until_finished(f"{ADMIN}/v2/rooms/delete_status/{q(response['delete_id'])}")
        else:
            leaver = self.local.register(f"leaving{time.monotonic_ns()}")
            room = self.rooms[-1]
            leaver.join(room)
            for number in range(5):
                leaver.say(room, f"remember me {number}")
            erase = rng.random() < 0.6
            self.admin.call("POST", f"{ADMIN}/v1/deactivate/{q(leaver.user_id)}", {"erase": erase})

    def upgrade(self, _: random.Random) -> None:
        """Replace a room by a room of another version."""
        self._wait(12)
        room = self.rooms[-1]
        path = f"{V3}/rooms/{q(room)}/upgrade"
        replacement = str(self.users[0].call("POST", path, {"new_version": "11"})["replacement_room"])
        self.users[1].join(replacement)

    def interrupt_federation(self, rng: random.Random) -> None:
        """Stop the processes of the remote homeserver for a while; the local homeserver continues to send."""
        self._wait(20)
        for signal_number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in self.remote.processes.values():
                os.kill(pid, signal_number)
            if signal_number is signal.SIGSTOP:
                self._wait(LINK_DOWN_SECONDS)
        # A homeserver that is reachable again receives the events that it missed.
        self.remote_users[0].say(rng.choice(self.shared), "back again")

    def _repeat(self, number: int, act: Callable[[random.Random], None]) -> None:
        rng = random.Random(f"{self.seed}:{number}")
        name = act.__name__
        while not self.quiet.is_set():
            try:
                act(rng)
                self.done[name] = self.done.get(name, 0) + 1
            except (MatrixError, httpx.TransportError):
                # This is expected: a room was deleted, a user has left it, or the other homeserver is slow.
                self.refused[name] = self.refused.get(name, 0) + 1
            except Exception as error:  # noqa: BLE001 - reported by the test
                self.broken.append(error)
                return
            self._wait(self.pause)

    def _purge(self, room: str, event: str) -> None:
        body = {"purge_up_to_event_id": event, "delete_local_events": True}
        response = self.admin.call("POST", f"{ADMIN}/v1/purge_history/{q(room)}", body)
        self._wait_until_finished(f"{ADMIN}/v1/purge_history_status/{q(response['purge_id'])}")

    def _wait_until_finished(self, path: str) -> None:
        while not self.quiet.is_set() and self.admin.call("GET", path)["status"] not in ("complete", "failed"):
            self._wait(0.3)

    def _read_backwards(self, client: Client, room: str) -> None:
        token = None
        for _ in range(3):
            params = {"dir": "b", "limit": "10"} | ({"from": token} if token else {})
            token = client.call("GET", f"{V3}/rooms/{q(room)}/messages", params=params).get("end")
            if not token:
                return

    def _random_user(self, rng: random.Random) -> Client:
        return rng.choice(self.users)

    def _random_process(self, rng: random.Random) -> str:
        return rng.choice(sorted(self.local.urls))

    def _wait(self, seconds: float) -> None:
        self.quiet.wait(seconds)
