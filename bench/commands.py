"""How long the commands take that say who may see what, as they are typed: each in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse_lakehouse.config.settings import Settings

TIMES: Final = 5

_LAKEHOUSE: Final = Path(sys.executable).with_name("lakehouse")
_AS_OF: Final = "2026-01-01"


@dataclass(frozen=True)
class Example:
    """What the commands are asked about: an event of a large room, a member of that room, and another room."""

    event: str
    room: str
    user: str
    other_room: str


def timed(settings: Settings, example: Example, progress: Callable[[str], None]) -> dict[str, list[float]]:
    """Seconds of each command, several times, the names of what is asked about left out.

    :raises RuntimeError: when a command fails.
    """
    environment = os.environ | settings.to_environment()
    found = {}
    for words in _typed(example):
        name = " ".join(word for word in words if word.islower() and word[0] not in "$@!")
        found[name] = [_seconds(words, environment) for _ in range(TIMES)]
        progress(f"lakehouse {name}: {min(found[name]):.2f} to {max(found[name]):.2f} s")
    return found


def _typed(one: Example) -> list[list[str]]:
    return [
        ["who-can-see", one.event],
        ["who-can-see", one.event, "--explain"],
        ["who-can-see", one.event, "--user", one.user],
        ["visible", one.user],
        ["visible", one.user, "--room", one.room],
        ["visible", one.user, "--room", one.other_room, "--as-of", _AS_OF],
        ["state-at", one.event],
        ["state-at", one.event, "--before"],
    ]


def _seconds(words: list[str], environment: dict[str, str]) -> float:
    started = time.monotonic()
    done = subprocess.run([str(_LAKEHOUSE), *words], env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"lakehouse {' '.join(words)} ended with {done.returncode}: {done.stderr[-500:]}")
    return seconds
