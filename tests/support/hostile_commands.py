"""All commands of ``lakehouse``, with arguments for a lake with hostile text."""

from collections.abc import Iterator
from typing import Any, Final

import typer

from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.output import OutputFormat
from tests.support.hostile_source import EVENT, MEMBER, ROOM, STATE_EVENT, TYPE

_IN_THE_ROOM: Final = "where room_id like '%forged%'"

TRIED: Final[dict[str, list[list[str]]]] = {
    "branches": [[]],
    "branches drop": [[ROOM]],
    "compress apply": [["--strategy", "best", "--room", ROOM]],
    "compress history": [[], ["--room", ROOM]],
    "compress plan": [[], ["--strategy", "best", "--room", ROOM]],
    "compress undo": [["/no/such/file"]],
    "compress verify": [["--room", ROOM]],
    "connect": [["duckdb"], ["pyiceberg"], ["spark"], ["trino"]],
    "diff": [[]],
    "doctor": [[], ["--deep"]],
    "grants": [[], ["--harden"]],
    "homeservers": [[]],
    "metrics": [[]],
    "positions": [[], ["--gaps"], ["--history"]],
    "prove-erased": [[MEMBER], [TYPE]],
    "query": [
        *([f"select * from {table}"] for table in ("gold.state_integrity", "audit.stream_positions", "audit.checks")),
        *([f"select * from {table}"] for table in ("audit.incidents", "bronze.room_stats_state", "silver.rooms")),
        [f"select json from bronze.event_json {_IN_THE_ROOM} limit 3"],
        [f"select * from gold.events {_IN_THE_ROOM} limit 3"],
        [f'select 1 as "{TYPE}"'],
        [f"select {TYPE}"],
        [f'select "{TYPE}" from bronze.events'],
        [f"select room_id::int from gold.events {_IN_THE_ROOM}"],
    ],
    "releases": [[]],
    "report": [["--output", "page.html"]],
    "rooms cleanup": [[]],
    "sizes": [[], ["--all"]],
    "state restore-plan": [["--room", ROOM]],
    "state-at": [[EVENT], [EVENT, "--before"], [EVENT, "--type", TYPE], [TYPE]],
    "summary": [[]],
    "visible": [[MEMBER], [MEMBER, "--room", ROOM], [MEMBER, "--room", ROOM, "--peeking"], [TYPE]],
    "who-can-see": [[EVENT], [EVENT, "--user", MEMBER, "--explain"], [STATE_EVENT], [EVENT, "--user", TYPE], [TYPE]],
}
"""Command → argument lists with which it is run."""

QUOTING: Final = {
    "compress apply", "compress plan", "compress verify", "doctor", "positions", "prove-erased", "query", "state-at",
    "summary", "visible", "who-can-see",
}  # fmt: skip
"""Commands that succeed and print hostile text."""

ELSEWHERE: Final = {
    "airflow": "passes its arguments to Airflow's own command",
    "replicate serve": "runs until Ctrl-C; its log is searched",
    "replicate tap": "runs until Ctrl-C; its log is searched",
    "run": "creates the lake; its output is searched",
    "ui": "runs until Ctrl-C and shows nothing of a lake",
}
"""Command that is not in ``TRIED`` → reason."""


def commands() -> dict[str, list[OutputFormat]]:
    """Return all commands, each with the formats in which it writes rows."""
    return dict(_commands(typer.main.get_command(app), ""))


def _commands(command: Any, path: str) -> Iterator[tuple[str, list[OutputFormat]]]:
    subcommands = getattr(command, "commands", {})
    if not subcommands or (path and command.invoke_without_command):
        yield path, list(OutputFormat) if any(param.name == "format" for param in command.params) else []
    for name, subcommand in subcommands.items():
        yield from _commands(subcommand, f"{path} {name}".strip())
