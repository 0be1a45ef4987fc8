"""Rooms whose event graph forks, because several processes send events to a room at the same time."""

import contextlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sample.client import V3, Client, MatrixError
from sample.traffic.stage import Stage, visibility

VERSIONS = ("1", "2", "6", "9", "10", "11", "12", "12")
ROUNDS = 14
CROWD = ("frank", "grace", "heidi", "lena", "yusuf", "zoe", "mallory", "eve")
# Synapse 1.152 fails with a filter that excludes all rooms. This filter names a missing room instead.
_NOTHING = '{"room": {"rooms": ["!none:synapse.example"]}, "presence": {"types": []}}'
VISIBILITIES = ("shared", "joined", "world_readable", "invited")


def forks(stage: Stage) -> None:
    """Send concurrent messages, state changes and bans through all processes, in two rooms at a time."""
    with ThreadPoolExecutor(2) as executor:
        rooms = [
            stage.room("forks", "frank", room_version=version, state=[visibility("shared")]) for version in VERSIONS
        ]
        seeds = [stage.rng.getrandbits(64) for _ in rooms]
        for future in [executor.submit(_fork, stage, room, seed) for room, seed in zip(rooms, seeds, strict=True)]:
            future.result()


def _fork(stage: Stage, room: str, seed: int) -> None:
    stage = replace(stage, rng=random.Random(seed))  # noqa: S311 - choices, not secrets
    stage.enter(room, "frank", *CROWD[1:])
    since = dict.fromkeys(stage.hs.event_persisters, "")
    with ThreadPoolExecutor(8) as executor:
        for number in range(ROUNDS):
            futures = [executor.submit(_build_move(stage, room, number, slot)) for slot in range(8)]
            # While both persisters write, stream tokens contain the positions of both.
            while not all(future.done() for future in futures):
                for process, token in since.items():
                    query = {"timeout": "0", "filter": _NOTHING} | ({"since": token} if token else {})
                    response = stage.users["alice"].call("GET", f"{V3}/sync", params=query, via=process)
                    since[process] = response["next_batch"]
            for future in futures:
                future.result()
    stage.chat(room, ["frank"], 2)


def _build_move(stage: Stage, room: str, number: int, slot: int) -> Callable[[], None]:
    processes = sorted(stage.hs.urls)
    via = processes[slot % len(processes)]
    host, actor = stage.users["frank"], stage.users[CROWD[slot]]
    text = stage.words()
    rng = stage.rng
    choice = rng.random()
    target = stage.users[rng.choice(("eve", "mallory"))]
    value = rng.choice(VISIBILITIES)

    def move() -> None:
        # Another thread may have banned the user, so the homeserver may refuse the event.
        with contextlib.suppress(MatrixError):
            if slot == 0 and number % 3 == 0:
                host.set_state(room, "m.room.history_visibility", {"history_visibility": value}, via=via)
            elif slot == 1 and number % 4 == 1:
                host.set_state(room, "m.room.topic", {"topic": text}, via=via)
            elif slot == 2 and number % 5 == 2:
                _ban_or_invite(host, target, room, via, ban=choice < 0.6)
            elif choice < 0.2:
                content = {"membership": "join", "displayname": f"{actor.user_id[1:4]} {number}"}
                actor.set_state(room, "m.room.member", content, actor.user_id, via=via)
            else:
                actor.say(room, text, via=via)

    return move


def _ban_or_invite(host: Client, target: Client, room: str, via: str, *, ban: bool) -> None:
    membership = "ban" if ban else "invite"
    host.set_state(room, "m.room.member", {"membership": membership}, target.user_id, via=via)
    if not ban:
        target.join(room, via=via)
