"""What a real Synapse answers to "may this user see this event?", recorded to be held against our own answers.

Two recordings of the sample are shipped beside this file, and ``python -m tests.visibility.record`` makes them anew.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sample.environment import synapse_python
from synapse_lakehouse.config.settings import PROJECT_FOLDER

WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("room_id", WORD, nullable=False),
        pa.field("user_id", WORD),
        pa.field("event_id", WORD, nullable=False),
        pa.field("peeking", pa.bool_(), nullable=False),
        pa.field("outcome", WORD, nullable=False),
        pa.field("membership", WORD),
    ]
)


class Recorded(NamedTuple):
    """Answers as :data:`SCHEMA`, what they are answers to, and what Synapse failed on.

    Rows are sorted by room, user (null, who never was a member, last), event and peeking. ``about`` holds ``as_of``
    (ms) and ``sections`` of homeserver.yaml, and what the recorder added. ``errors`` is event id → error: where Synapse
    raised there is no answer.
    """

    answers: pa.Table
    about: dict[str, Any]
    errors: dict[str, str]


def load(path: Path) -> Recorded:
    """A recording."""
    table = pq.read_table(path)
    kept = {key: json.loads((table.schema.metadata or {})[key]) for key in (b"about", b"errors")}
    return Recorded(table.replace_schema_metadata(None), kept[b"about"], kept[b"errors"])


def record(dsn: str, path: Path, as_of: int, sections: Mapping[str, Any], **about: str) -> float:
    """Ask Synapse for every answer on the database ``dsn``, which it may write to, and keep them in ``path``.

    Returns the seconds that Synapse took, once it had started.

    :param as_of: the time in ms for which Synapse shall judge retention.
    :param sections: sections of homeserver.yaml, such as ``server_name`` and ``retention``.
    :param about: kept with the answers.
    :raises subprocess.CalledProcessError: when Synapse does not start; what it printed is on stderr.
    """
    with TemporaryDirectory(prefix="visibility-") as scratch:
        lines = Path(scratch) / "answers"
        question = [dsn, scratch, str(lines), str(as_of), json.dumps(sections)]
        command: list[str | Path] = [synapse_python(), "-m", "tests.visibility.synapse_answers", *question]
        subprocess.run(command, cwd=PROJECT_FOLDER, check=True)
        answers, last = _table(lines)
    errors = last["errors"]
    metadata = {"about": json.dumps({"as_of": as_of, "sections": sections} | about), "errors": json.dumps(errors)}
    pq.write_table(
        answers.replace_schema_metadata(metadata), path, compression="zstd", compression_level=19,
        row_group_size=max(len(answers), 1), dictionary_pagesize_limit=1 << 26, write_statistics=False,
    )  # fmt: skip
    return float(last["seconds"])


def _table(lines: Path) -> tuple[pa.Table, dict[str, Any]]:
    """What :mod:`tests.visibility.synapse_answers` wrote, and its last line."""
    *_, last = _read(lines)
    words = [pa.array([word[part] for word in last["vocabulary"]], pa.string()) for part in (0, 1)]
    batches = []
    for line in _read(lines):
        if "room_id" in line:
            room, events = line["room_id"], pa.array(line["event_ids"], pa.string())
        elif "answers" in line:
            if not line["peeking"]:
                plainly = line["answers"]
                continue
            numbers = [one for pair in zip(plainly, line["answers"], strict=True) for one in pair]
            said = pa.array(numbers, pa.int32())
            columns = [
                _same(room, len(said)),
                _same(line["user_id"], len(said)),
                pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(events), dtype=np.int32), 2), events),
                pa.array(np.tile([False, True], len(events))),
                *(pa.DictionaryArray.from_arrays(said, word).cast(pa.string()).cast(WORD) for word in words),
            ]
            batch = pa.record_batch(columns, names=SCHEMA.names)
            batches.append(batch.filter(said.is_valid()).cast(SCHEMA))
    table = pa.Table.from_batches(batches, SCHEMA).unify_dictionaries().combine_chunks()
    return table, last


def _same(word: str | None, times: int) -> pa.DictionaryArray:
    return pa.array([word], WORD).take(pa.array(np.zeros(times, np.int32)))


def _read(lines: Path) -> Iterator[dict[str, Any]]:
    with lines.open() as opened:
        yield from map(json.loads, opened)
