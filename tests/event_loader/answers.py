"""What a real Synapse makes of rows of ``event_json``, recorded; and what the product makes of them, in the same form.

``python -m tests.event_loader.answers`` records the answers again.
"""

import gzip
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from sample.environment import synapse_python
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.events import load_stored_event
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from tests.event_loader.documents import VERSIONS, Row, room_of, rows

RECORDED = Path(__file__).with_name("answers.json.gz")
RECORDED_ROWS = 4_000
SEED = "recorded"

RAISING_REASONS = {
    "not_json", "unusable_ids", "metadata_missing", "metadata_not_an_object", "room_unknown", "not_canonical",
    "other_event_id",
}  # fmt: skip
"""Reasons for which Synapse answers a request with an error. For all other reasons it treats the event as unknown."""


def answers_of_synapse(dsn: str, questions: Sequence[Row], scratch: Path) -> list[Any]:
    """Synapse's answers on the database ``dsn``, which gets the rows.

    :raises subprocess.CalledProcessError: when Synapse does not start; its output is on stderr.
    """
    with psycopg.connect(dsn) as source, source.cursor() as cursor:
        cursor.executemany(
            "insert into rooms (room_id, room_version) values (%s, %s)",
            [(room_of(version), version) for version in VERSIONS if version is not None],
        )
        # As if they had been backfilled, so that Synapse takes none of them for news.
        (first,) = cursor.execute("select least(min(stream_ordering), 0) from events").fetchone() or (0,)
        with cursor.copy(
            "copy events (event_id, room_id, type, topological_ordering, depth, stream_ordering, processed, outlier,"
            " received_ts) from stdin"
        ) as copy:
            for number, row in enumerate(questions, 1):
                copy.write_row((row.event_id, row.room_id, "any", 1, 1, first - number, True, False, 1))
        with cursor.copy(
            "copy event_json (event_id, room_id, json, internal_metadata, format_version) from stdin"
        ) as copy:
            for row in questions:
                copy.write_row((row.event_id, row.room_id, row.json, row.internal_metadata, row.format_version))
    file = scratch / "questions"
    file.write_text("".join(f"{row.event_id}\n" for row in questions))
    command: list[str | Path] = [
        synapse_python(),
        "-m",
        "tests.event_loader.synapse_loader",
        dsn,
        str(scratch),
        str(file),
    ]
    subprocess.run(command, cwd=PROJECT_FOLDER, check=True)
    return [json.loads(line) for line in file.read_text().splitlines()]


def answers_of_product(questions: Iterable[Row]) -> list[Any]:
    """The product's answers."""
    return [_ours(row) for row in questions]


def _ours(row: Row) -> Any:
    loaded = load_stored_event.load_event(*row)
    if loaded.unloadable is None:
        without = {"hash_verdict", "hash_reason", "room_property", "predecessor"}
        return [value for name, value in loaded._asdict().items() if name not in without]
    return False if loaded.unloadable in RAISING_REASONS else None


def digest(questions: Iterable[Row]) -> str:
    """Of the rows, to see whether they are the recorded ones."""
    return hashlib.sha256(json.dumps(list(questions)).encode()).hexdigest()


def load() -> dict[str, Any]:
    """``rows``: the digest of the input rows; ``answers``: those of Synapse."""
    recorded: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return recorded


def main() -> None:
    """Command line."""
    questions = list(rows(RECORDED_ROWS, SEED))
    with (
        tempfile.TemporaryDirectory(prefix="loader-") as folder,
        embedded_postgres.run_server(Path(folder) / "pg") as server,
    ):
        answers = answers_of_synapse(sample.restore_sample(server, "plain"), questions, Path(folder))
    recorded = json.dumps({"rows": digest(questions), "answers": answers})
    RECORDED.write_bytes(gzip.compress(recorded.encode(), mtime=0))


if __name__ == "__main__":
    main()
