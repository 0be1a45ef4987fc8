"""Rooms whose event graph forks: several processes send into one room at the same time."""

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
# Synapse 1.152 cannot answer a filter that excludes all rooms: this one names a room that does not exist.
_NOTHING = '{"room": {"rooms": ["!none:synapse.example"]}, "presence": {"types": []}}'
VISIBILITIES = ("shared", "joined", "world_readable", "invited")


def forks(stage: Stage) -> None:
    """Messages, profile changes, topics, visibilities and bans that race through all processes, two rooms at a time."""
    with ThreadPoolExecutor(2) as playing:
        rooms = [
            stage.room("forks", "frank", room_version=version, state=[visibility("shared")]) for version in VERSIONS
        ]
        seeds = [stage.rng.getrandbits(64) for _ in rooms]
        for played in [playing.submit(_fork, stage, room, seed) for room, seed in zip(rooms, seeds, strict=True)]:
            played.result()


def _fork(stage: Stage, room: str, seed: int) -> None:
    stage = replace(stage, rng=random.Random(seed))  # noqa: S311 - choices, not secrets
    stage.enter(room, "frank", *CROWD[1:])
    since = dict.fromkeys(stage.hs.event_persisters, "")
    with ThreadPoolExecutor(8) as racers:
        for number in range(ROUNDS):
            racing = [racers.submit(_move(stage, room, number, place)) for place in range(8)]
            # While both persisters write, tokens contain the position of each, so both get requests.
            while not all(move.done() for move in racing):
                for process, token in since.items():
                    query = {"timeout": "0", "filter": _NOTHING} | ({"since": token} if token else {})
                    answer = stage.users["alice"].call("GET", f"{V3}/sync", params=query, via=process)
                    since[process] = answer["next_batch"]
            for outcome in racing:
                outcome.result()
    stage.chat(room, ["frank"], 2)


def _move(stage: Stage, room: str, number: int, place: int) -> Callable[[], None]:
    processes = sorted(stage.hs.urls)
    via = processes[place % len(processes)]
    host, actor = stage.users["frank"], stage.users[CROWD[place]]
    text = stage.words()
    rng = stage.rng
    choice = rng.random()
    target = stage.users[rng.choice(("eve", "mallory"))]
    value = rng.choice(VISIBILITIES)

    def move() -> None:
        # Who lost the race may have been banned meanwhile: the homeserver is right to refuse.
        with contextlib.suppress(MatrixError):
            if place == 0 and number % 3 == 0:
                host.set_state(room, "m.room.history_visibility", {"history_visibility": value}, via=via)
            elif place == 1 and number % 4 == 1:
                host.set_state(room, "m.room.topic", {"topic": text}, via=via)
            elif place == 2 and number % 5 == 2:
                _ban_or_bring_back(host, target, room, via, ban=choice < 0.6)
            elif choice < 0.2:
                content = {"membership": "join", "displayname": f"{actor.user_id[1:4]} {number}"}
                actor.set_state(room, "m.room.member", content, actor.user_id, via=via)
            else:
                actor.say(room, text, via=via)

    return move


def _ban_or_bring_back(host: Client, target: Client, room: str, via: str, *, ban: bool) -> None:
    membership = "ban" if ban else "invite"
    host.set_state(room, "m.room.member", {"membership": membership}, target.user_id, via=via)
    if not ban:
        target.join(room, via=via)
