"""Load rows of ``event_json`` with Synapse and with the product, in the same format.

``python -m tests.event_loader.answers`` records the results of Synapse in ``answers.json.gz``.
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

ANSWERS_FILE = Path(__file__).with_name("answers.json.gz")
RECORDED_ROWS = 4_000
SEED = "recorded"

RAISING_REASONS = {
    "not_json", "unusable_ids", "metadata_missing", "metadata_not_an_object", "room_unknown", "not_canonical",
    "other_event_id",
}  # fmt: skip
"""Reasons for which Synapse responds with an error. For all other reasons, it treats the event as unknown."""


def answers_of_synapse(dsn: str, stored_rows: Sequence[Row], scratch: Path) -> list[Any]:
    """Insert rows into the database ``dsn``, and return the events that Synapse loads from them.

    :raises subprocess.CalledProcessError: if Synapse does not start. Its output is on stderr.
    """
    with psycopg.connect(dsn) as source, source.cursor() as cursor:
        cursor.executemany(
            "insert into rooms (room_id, room_version) values (%s, %s)",
            [(room_of(version), version) for version in VERSIONS if version is not None],
        )
        # Negative stream IDs, as of backfilled events. Synapse then does not process the rows as new events.
        (first,) = cursor.execute("select least(min(stream_ordering), 0) from events").fetchone() or (0,)
        with cursor.copy(
            "copy events (event_id, room_id, type, topological_ordering, depth, stream_ordering, processed, outlier,"
            " received_ts) from stdin"
        ) as copy:
            for number, row in enumerate(stored_rows, 1):
                copy.write_row((row.event_id, row.room_id, "any", 1, 1, first - number, True, False, 1))
        with cursor.copy(
            "copy event_json (event_id, room_id, json, internal_metadata, format_version) from stdin"
        ) as copy:
            for row in stored_rows:
                copy.write_row((row.event_id, row.room_id, row.json, row.internal_metadata, row.format_version))
    file = scratch / "event_ids"
    file.write_text("".join(f"{row.event_id}\n" for row in stored_rows))
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


def answers_of_product(stored_rows: Iterable[Row]) -> list[Any]:
    """Return the events that the product loads from the rows, in the format of ``synapse_loader.py``."""
    return [_load(row) for row in stored_rows]


def _load(row: Row) -> Any:
    loaded = load_stored_event.load_event(*row)
    if loaded.unloadable is None:
        excluded = {"hash_verdict", "hash_reason", "room_property", "predecessor"}
        return [value for name, value in loaded._asdict().items() if name not in excluded]
    return False if loaded.unloadable in RAISING_REASONS else None


def digest(stored_rows: Iterable[Row]) -> str:
    """Return the digest of the input rows."""
    return hashlib.sha256(json.dumps(list(stored_rows)).encode()).hexdigest()


def load() -> dict[str, Any]:
    """Return the recorded file. ``rows``: digest of the input rows. ``answers``: results of Synapse."""
    recorded: dict[str, Any] = json.loads(gzip.decompress(ANSWERS_FILE.read_bytes()))
    return recorded


def main() -> None:
    """Record the results of Synapse."""
    stored_rows = list(rows(RECORDED_ROWS, SEED))
    with (
        tempfile.TemporaryDirectory(prefix="loader-") as folder,
        embedded_postgres.run_server(Path(folder) / "pg") as server,
    ):
        answers = answers_of_synapse(sample.restore_sample(server, "plain"), stored_rows, Path(folder))
    recorded = json.dumps({"rows": digest(stored_rows), "answers": answers})
    ANSWERS_FILE.write_bytes(gzip.compress(recorded.encode(), mtime=0))


if __name__ == "__main__":
    main()
