"""Redact and hash events with Synapse and with the product, in the same format.

``python -m tests.hashes.answers`` records digests of Synapse's results in ``answers.json``: name of the events → room
version → ``{"sha256": digest of the results, "refused": indexes of the events that Synapse rejects}``.
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

ANSWERS_FILE = Path(__file__).with_name("answers.json")

Event = dict[str, Any]
Answer = list[Any]


def input_events(dsn: str) -> dict[str, list[Event]]:
    """Return synthetic events, and an event of each type and set of keys in the database ``dsn``."""
    with psycopg.connect(dsn) as source:
        stored = [json.loads(text) for (text,) in source.execute("select json from event_json order by event_id")]
    events_by_keys = {(event["type"], *sorted(event), *sorted(event["content"])): event for event in stored}
    return {"corpus": list(corpus.events()), "sample": list(events_by_keys.values())}


def answers_of_synapse(events: list[Event]) -> dict[str, list[Answer]]:
    """Return Synapse's results by room version.

    :raises subprocess.CalledProcessError: if Synapse fails. Its output is on stderr.
    """
    result = subprocess.run(
        [synapse_python(), "-m", "tests.hashes.synapse_hashes"], cwd=PROJECT_FOLDER, input=json.dumps(events),
        text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    answers: dict[str, list[Answer]] = json.loads(result.stdout)
    return answers


def answers_of_product(events: list[Event], version: str, refused: Iterable[int]) -> list[Answer]:
    """Return the product's results, without the IDs of the events with the indexes ``refused``."""
    rules, refused_indexes = redaction.ROOM_VERSION_RULES[version], set(refused)
    return [_compute_answer(event, rules, index in refused_indexes) for index, event in enumerate(events)]


def _compute_answer(event: Event, rules: int, is_refused: bool) -> Answer:
    redacted = redaction.redact(event, rules)
    event_id = None if rules < 3 else event_hashes.compute_event_id(redacted, rules)
    return [redacted, event_hashes.compute_content_hash(event).hex(), False if is_refused else event_id]


def digest(answers: list[Answer]) -> dict[str, Any]:
    """Return the digest of the answers, as it is recorded."""
    refused = [index for index, (*_, event_id) in enumerate(answers) if event_id is False]
    return {"sha256": hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest(), "refused": refused}


def main() -> None:
    """Record the digests of Synapse's results."""
    with (
        tempfile.TemporaryDirectory(prefix="hashes-") as folder,
        embedded_postgres.run_server(Path(folder) / "pg") as server,
    ):
        events_by_name = input_events(sample.restore_sample(server, "plain"))
    digests = {
        name: {version: digest(answers) for version, answers in answers_of_synapse(events).items()}
        for name, events in events_by_name.items()
    }
    ANSWERS_FILE.write_text(json.dumps(digests) + "\n")


if __name__ == "__main__":
    main()
