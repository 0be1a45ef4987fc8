"""A real Synapse's hashes and redactions of events, recorded for the comparison with ours in the same format.

``python -m tests.hashes.answers`` asks anew and writes ``answers.json``: what was asked → room version → ``{"sha256" of
all answers of tests.hashes.synapse_hashes, "refused": the numbers of those that Synapse takes for no event}``.
"""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from sample.environment import synapse_python
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.events import event_hashes, redaction
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from tests.hashes import corpus

RECORDED = Path(__file__).with_name("answers.json")

Event = dict[str, Any]
Answer = list[Any]


def questions(dsn: str) -> dict[str, list[Event]]:
    """The input: synthetic events, and one event of each type and set of keys in the database ``dsn``."""
    with psycopg.connect(dsn) as source:
        stored = [json.loads(text) for (text,) in source.execute("select json from event_json order by event_id")]
    shapes = {(item["type"], *sorted(item), *sorted(item["content"])): item for item in stored}
    return {"corpus": list(corpus.events()), "sample": list(shapes.values())}


def answers_of_synapse(events: list[Event]) -> dict[str, list[Answer]]:
    """Synapse's answers for each room version that it knows, by its own Python.

    :raises subprocess.CalledProcessError: when Synapse raised; what it printed is on stderr.
    """
    result = subprocess.run(
        [synapse_python(), "-m", "tests.hashes.synapse_hashes"], cwd=PROJECT_FOLDER, input=json.dumps(events),
        text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    answers: dict[str, list[Answer]] = json.loads(result.stdout)
    return answers


def answers_of_product(events: list[Event], version: str, refused: Iterable[int]) -> list[Answer]:
    """Our own answers, without the IDs of ``refused`` events."""
    rules, without = redaction.ROOM_VERSION_RULES[version], set(refused)
    return [_ours(event, rules, number in without) for number, event in enumerate(events)]


def _ours(event: Event, rules: int, refused: bool) -> Answer:
    remaining = redaction.redact(event, rules)
    hashed = None if rules < 3 else event_hashes.compute_event_id(remaining, rules)
    return [remaining, event_hashes.compute_content_hash(event).hex(), False if refused else hashed]


def digest(answers: list[Answer]) -> dict[str, Any]:
    """The stored digest of the answers."""
    refused = [number for number, (*_, event_id) in enumerate(answers) if event_id is False]
    return {"sha256": hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest(), "refused": refused}


def main() -> None:
    """Command line."""
    with (
        tempfile.TemporaryDirectory(prefix="hashes-") as folder,
        embedded_postgres.run_server(Path(folder) / "pg") as server,
    ):
        asked_events = questions(sample.restore_sample(server, "plain"))
    recorded = {
        name: {version: digest(answers) for version, answers in answers_of_synapse(first).items()}
        for name, first in asked_events.items()
    }
    RECORDED.write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
