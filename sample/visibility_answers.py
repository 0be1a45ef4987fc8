"""Record which events Synapse shows to which users, and compare the answers with ``gold.event_visibility``.

``tests/visibility`` contains two recordings. ``python -m tests.visibility.record`` repeats them.
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
from duckdb import DuckDBPyConnection

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

_DIFFERENT = """
select
    coalesce(mine.room_id, synapse.room_id) as room_id, coalesce(mine.user_id, synapse.user_id) as user_id,
    coalesce(mine.event_id, synapse.event_id) as event_id, coalesce(mine.peeking, synapse.peeking) as peeking,
    mine.outcome, mine.rule, mine.membership, synapse.outcome as right_outcome, synapse.membership as right_membership
from (
    select *, count(*) over (partition by room_id, user_id, event_id, peeking) as times from gold.event_visibility
) as mine
full outer join synapse
    on mine.room_id = synapse.room_id and mine.event_id = synapse.event_id and mine.peeking = synapse.peeking
    and mine.user_id is not distinct from synapse.user_id
where mine.times > 1 or (
    mine.outcome is distinct from synapse.outcome
    or synapse.outcome <> 'hidden' and mine.membership is distinct from synapse.membership
) and not (synapse.outcome is null and mine.event_id in (select event_id from unanswered))
"""


class Recorded(NamedTuple):
    """Answers with the columns of :data:`SCHEMA`, the parameters of :func:`record`, and Synapse's errors.

    Rows are sorted by room, user, event and peeking. A null user, sorted last, means a user that never was a member.
    ``about`` contains ``as_of`` (ms), ``sections`` of homeserver.yaml, and more entries. ``errors`` maps an event ID to
    the exception that Synapse raised. Such an event has no answer.
    """

    answers: pa.Table
    about: dict[str, Any]
    errors: dict[str, str]


def load(path: Path) -> Recorded:
    """Read a recording."""
    table = pq.read_table(path)
    metadata = {key: json.loads((table.schema.metadata or {})[key]) for key in (b"about", b"errors")}
    return Recorded(table.replace_schema_metadata(None), metadata[b"about"], metadata[b"errors"])


def record(
    dsn: str, path: Path, as_of: int, sections: Mapping[str, Any], *, python: Path | None = None, **about: str
) -> float:
    """Run Synapse's filter for all users and events of the database ``dsn``, and write the answers to ``path``.

    Synapse changes the database.

    :param as_of: Synapse's current time in ms, at which retention is evaluated.
    :param sections: sections of homeserver.yaml, such as ``server_name`` and ``retention``.
    :param python: the Python of a release of Synapse; by default of the newest release.
    :param about: more entries for :attr:`Recorded.about`.
    :returns: seconds from the first to the last answer.
    :raises subprocess.CalledProcessError: if Synapse does not start. Its output is on stderr.
    """
    with TemporaryDirectory(prefix="visibility-") as scratch:
        lines = Path(scratch) / "answers"
        arguments = [dsn, scratch, str(lines), str(as_of), json.dumps(sections)]
        command: list[str | Path] = [python or synapse_python(), "-m", "sample.synapse_visibility", *arguments]
        subprocess.run(command, cwd=PROJECT_FOLDER, check=True)
        answers, last = _table(lines)
    errors = last["errors"]
    metadata = {"about": json.dumps({"as_of": as_of, "sections": sections} | about), "errors": json.dumps(errors)}
    pq.write_table(
        answers.replace_schema_metadata(metadata), path, compression="zstd", compression_level=19,
        row_group_size=max(len(answers), 1), dictionary_pagesize_limit=1 << 26, write_statistics=False,
    )  # fmt: skip
    return float(last["seconds"])


def differences(connection: DuckDBPyConnection, recorded: Recorded) -> list[dict[str, Any]]:
    """Return the rows that differ between ``gold.event_visibility`` and ``recorded``, and repeated rows.

    Memberships are compared only for visible events. An event for which Synapse raised an error may have any answer.
    """
    connection.register("synapse", recorded.answers)
    connection.register("unanswered", pa.table({"event_id": pa.array(recorded.errors, pa.string())}))
    rows: list[dict[str, Any]] = connection.execute(_DIFFERENT).to_arrow_table().to_pylist()
    return rows


def _table(lines: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the answers and the last line of the file of :mod:`sample.synapse_visibility`."""
    *_, last = _read(lines)
    words = [pa.array([word[part] for word in last["vocabulary"]], pa.string()) for part in (0, 1)]
    batches = []
    for line in _read(lines):
        if "room_id" in line:
            room, events = line["room_id"], pa.array(line["event_ids"], pa.string())
        elif "answers" in line:
            if not line["peeking"]:
                not_peeking = line["answers"]
                continue
            indices = pa.array(
                [index for pair in zip(not_peeking, line["answers"], strict=True) for index in pair], pa.int32()
            )
            columns = [
                _repeat(room, len(indices)),
                _repeat(line["user_id"], len(indices)),
                pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(events), dtype=np.int32), 2), events),
                pa.array(np.tile([False, True], len(events))),
                *(pa.DictionaryArray.from_arrays(indices, word).cast(pa.string()).cast(WORD) for word in words),
            ]
            batch = pa.record_batch(columns, names=SCHEMA.names)
            batches.append(batch.filter(indices.is_valid()).cast(SCHEMA))
    table = pa.Table.from_batches(batches, SCHEMA).unify_dictionaries().combine_chunks()
    return table, last


def _repeat(word: str | None, times: int) -> pa.DictionaryArray:
    return pa.array([word], WORD).take(pa.array(np.zeros(times, np.int32)))


def _read(lines: Path) -> Iterator[dict[str, Any]]:
    with lines.open() as file:
        yield from map(json.loads, file)
