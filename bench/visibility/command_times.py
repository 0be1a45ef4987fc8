"""Measure the seconds of the commands about visibility and state, each in a new process."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from synapse_lakehouse.config.settings import Settings

REPETITIONS: Final = 5

_LAKEHOUSE: Final = Path(sys.executable).with_name("lakehouse")
_AS_OF: Final = "2026-01-01"


@dataclass(frozen=True)
class CommandExample:
    """Arguments of the commands: an event of a large room, a member of the room, and another room."""

    event: str
    room: str
    user: str
    other_room: str


def time_commands(settings: Settings, example: CommandExample) -> dict[str, list[float]]:
    """Return the seconds of each command, :data:`REPETITIONS` times, by the command without its IDs.

    :raises RuntimeError: if a command fails.
    """
    environment = os.environ | settings.to_environment()
    seconds = {}
    for words in _commands(example):
        name = " ".join(word for word in words if word.islower() and word[0] not in "$@!")
        seconds[name] = [_seconds(words, environment) for _ in range(REPETITIONS)]
        typer.echo(f"lakehouse {name}: {min(seconds[name]):.2f} to {max(seconds[name]):.2f} s")
    return seconds


def _commands(example: CommandExample) -> list[list[str]]:
    return [
        ["who-can-see", example.event],
        ["who-can-see", example.event, "--explain"],
        ["who-can-see", example.event, "--user", example.user],
        ["visible", example.user],
        ["visible", example.user, "--room", example.room],
        ["visible", example.user, "--room", example.other_room, "--as-of", _AS_OF],
        ["state-at", example.event],
        ["state-at", example.event, "--before"],
    ]


def _seconds(words: list[str], environment: dict[str, str]) -> float:
    started = time.monotonic()
    process = subprocess.run([str(_LAKEHOUSE), *words], env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if process.returncode:
        raise RuntimeError(f"lakehouse {' '.join(words)} ended with {process.returncode}: {process.stderr[-500:]}")
    return seconds
