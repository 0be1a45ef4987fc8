"""The context of the scenes: the homeserver, its users, seeded choices, and the rooms and users by feature."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec

from sample.client import Client, Json, MatrixError
from sample.homeserver import Synapse

P = ParamSpec("P")

CAST = {
    "alice": "Alice", "bob": "Bob", "carol": "Carol ☕", "dave": "Dave", "erin": "Erin", "frank": "Frank",
    "grace": "Grace", "heidi": "Heidi", "ivan": "Иван", "judy": "Judy", "mallory": "Mallory", "niaj": "نياج",
    "olivia": "Olivia", "peggy": "Peggy", "quentin": "Quentin", "rupert": "Rupert", "sybil": "Sybil",
    "trent": "Trent", "ursula": "Ursula", "victor": "Víctor", "walter": "Walter", "xenia": "Ξένια",
    "yusuf": "Yusuf", "zoe": "Zoë", "eve": "Eve", "eliza": "Eliza", "lena": "李娜", "odd.user=1_2-3/4": "",
    "bot": "🤖", "silent": "Silent",
}  # fmt: skip
ADMINISTRATOR = "ada"
BRIDGED = ("ann", "ben")

_WORDS = (
    "the stream moved on again", "who wrote that?", "größer als gedacht", "déjà vu", "こんにちは世界", "привет",
    "مرحبا", "👩‍👩‍👧‍👦 family",
    "🎉", "see <b>this</b>", "100% sure", "a\nb", "tab\there", "it's \"quoted\"", "c:\\temp",
    "$$ price", "; drop table events; --", "naïve café", "e\u0301 combining", "\u200fright to left", "{}", "null", "—",
)  # fmt: skip


@dataclass
class Stage:
    """The context of a scene.

    :ivar users: localpart → client.
    :ivar found: feature → IDs of rooms and users with it, in order of creation.
    :ivar rng: random choices, which depend only on the seed and the scene.
    """

    hs: Synapse
    users: dict[str, Client]
    found: dict[str, list[str]] = field(default_factory=dict)
    seed: int = 0
    rng: random.Random = field(default_factory=random.Random)

    def play(self, scene: Callable[Concatenate["Stage", P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Play ``scene``. Its random choices depend only on the seed and its name."""
        rng = random.Random(f"{self.seed}:{scene.__name__}")  # noqa: S311 - choices, not secrets
        scene(Stage(self.hs, self.users, self.found, self.seed, rng), *args, **kwargs)

    def cast(self, *names: str) -> list[Client]:
        """Return the clients of the users ``names``."""
        return [self.users[name] for name in names]

    def note(self, feature: str, *identifiers: str) -> None:
        """Record the IDs of rooms or users with ``feature``."""
        self.found.setdefault(feature, []).extend(identifiers)

    def room(self, feature: str, creator: str, *, state: Iterable[Json] = (), **options: object) -> str:
        """Create a room with the feature's name as its alias; return its ID.

        :param state: initial state events, each ``{"type": …, "content": …}``.
        :param options: more options of ``POST /createRoom``, such as ``room_version``.
        """
        number = len(self.found.get(feature, [])) + 1
        alias = f"{feature}-{number}"
        options.setdefault("preset", "private_chat")
        options.setdefault("name", alias.replace("-", " "))
        options |= {"room_alias_name": alias, "initial_state": list(state)}
        try:
            room = self.users[creator].create_room(**options)
        except MatrixError as error:
            if error.errcode != "M_UNSUPPORTED_ROOM_VERSION":
                raise
            # Releases before 1.135 have no version 12.
            room = self.users[creator].create_room(**options | {"room_version": "11"})
        self.note(feature, room)
        return room

    def enter(self, room: str, host: str, *names: str) -> None:
        """Let ``host`` invite users, and let them join."""
        for guest in self.cast(*names):
            self.users[host].invite(room, guest)
            guest.join(room)

    def chat(self, room: str, names: Iterable[str], count: int) -> list[str]:
        """Send ``count`` messages of random users of ``names``; return their event IDs."""
        speakers = self.cast(*names)
        return [self.rng.choice(speakers).say(room, self.words()) for _ in range(count)]

    def words(self) -> str:
        """Return a text of a few random phrases."""
        return " ".join(self.rng.choices(_WORDS, k=self.rng.randint(1, 4)))


def visibility(value: object) -> Json:
    """Return the initial state event that sets a room's history visibility."""
    return {"type": "m.room.history_visibility", "state_key": "", "content": {"history_visibility": value}}
