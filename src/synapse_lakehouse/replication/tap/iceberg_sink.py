"""Write received commands to ``bronze.replication_commands``, a table that is append-only and has no branches.

A commit contains the commands since the previous commit and, in its last row (``TAP``), the position of every source.
Both are written together, so a tap that resumes from the positions writes each token once. A commit without this last
row is no proof that the tap listens: the server may refuse the tap, for example.
"""

import json
import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.read.recent_rows import read_newest_rows
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.tables import COMMANDS_SCHEMA
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Source, Update
from synapse_lakehouse.replication.tap.follower import Item
from synapse_lakehouse.replication.tap.redact_commands import redact_command
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor
from synapse_lakehouse.replication.tap_liveness import COMMIT_PROPERTY, WITHOUT_POSITIONS

log = get_printable_logger(__name__)

_STOPPING_RETRY_SECONDS: Final = 0.5
STOP_SECONDS: Final = 5.0
"""A stopped tap retries its last commit for this long."""
_RECENT_SNAPSHOTS: Final = 50
_COMMITS_PER_EXPIRY: Final = 200
_SNAPSHOT_RETENTION: Final = timedelta(hours=1)
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _to_json(value: Any) -> str:
    # JSON may contain halves of a surrogate pair, which UTF-8, the encoding of the lake, cannot represent.
    text = _ENCODER.encode(value)
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


class MonotonicClock:
    """Returns microseconds since the epoch, more at each call: rows stay in order even if the clock is set back."""

    def __init__(self, read_time: Callable[[], float] = time.time) -> None:
        self._read_time = read_time
        self._last = 0

    def __call__(self) -> int:
        """Return the next time."""
        self._last = max(int(self._read_time() * 1_000_000), self._last + 1)
        return self._last

    def start_after(self, moment: datetime) -> None:
        """From now on, return only times after ``moment``, the last time of another process."""
        self._last = max(self._last, int(moment.timestamp() * 1_000_000) + 1)


CLOCK: Final = MonotonicClock()


class Batch:
    """Uncommitted rows of ``COMMANDS_TABLE``, by column."""

    def __init__(self, redactor: RowRedactor, source: str, dialect: str, clock: MonotonicClock = CLOCK) -> None:
        self._redactor = redactor
        self._source = source
        self._dialect = dialect
        self._clock = clock
        self._columns: tuple[list[Any], ...] = tuple([] for _ in COMMANDS_SCHEMA)
        self.started_at: float | None = None
        self.has_positions = False

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, item: Item) -> None:
        """Add an item that was received just now."""
        now = self._clock()
        match item:
            case Update(stream, instance, token, rows, is_read):
                source = "database" if is_read else self._source
                for ordinal, row in enumerate(rows):
                    redacted = _to_json(self._redactor.redact(stream, row))
                    self._add(now, source, "RDATA", stream, instance, token, ordinal, None, redacted, None)
            case Gap(stream, instance, after, upto, recovered, cause):
                fields_json = _to_json({"found": recovered, "cause": cause})
                self._add(now, self._source, "GAP", stream, instance, upto, None, after, None, fields_json)
            case c.Position(stream, instance, previous, token):
                self._add(now, self._source, "POSITION", stream, instance, token, None, previous, None, None)
            case _:
                fields = redact_command(item)
                command = fields.pop("command")
                self._add(now, self._source, command, None, None, None, None, None, None, _to_json(fields))

    def add_positions(self, positions: Mapping[Source, int]) -> None:
        """Add the last row: the current position of each source."""
        self.has_positions = True
        positions_json = _to_json([[stream, instance, token] for (stream, instance), token in positions.items()])
        self._add(self._clock(), self._source, "TAP", None, None, None, None, None, None, positions_json)

    def to_arrow(self) -> pa.Table:
        """Return the rows, with the columns of ``COMMANDS_SCHEMA``."""
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(self._columns, COMMANDS_SCHEMA, strict=True)],
            schema=COMMANDS_SCHEMA,
        )

    def _add(self, now: int, source: str, command: str, *values: Any) -> None:
        if self.started_at is None:
            self.started_at = time.monotonic()
        for column, value in zip(self._columns, (now, source, self._dialect, command, *values), strict=True):
            column.append(value)


class TapRunningError(LakehouseError):
    """Another tap of the same source and dialect committed meanwhile: both would write the same tokens."""


class SinkWriteError(LakehouseError):
    """The tap ended before it could write the last received commands."""


class IcebergSink:
    """Commits the batches of one tap. A ``source`` and ``dialect`` can have only one running tap."""

    def __init__(
        self,
        catalog: Catalog,
        source: str,
        dialect: str,
        stop_seconds: float = STOP_SECONDS,
        retry_seconds: float = 1.0,
        clock: MonotonicClock = CLOCK,
    ) -> None:
        """:param stop_seconds: limit for retries after :meth:`limit_retries`.

        :param retry_seconds: delay before the first retry; it doubles up to 30 seconds.
        """
        self._catalog = catalog
        self._source = source
        self._dialect = dialect
        self._stop_seconds = stop_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._commit_count = 0
        self._last_commit_id: str | None = None
        self._is_stopping = threading.Event()
        self._deadline = math.inf
        tables.ensure_commands_table(catalog)

    def read_positions(self) -> dict[Source, int]:
        """Read the positions of the last commit. A later commit by another tap makes :meth:`append` fail."""
        tap = And(
            EqualTo(term="command", value="TAP"),
            EqualTo(term="source", value=self._source),
            EqualTo(term="dialect", value=self._dialect),
        )
        table = self._catalog.load_table(COMMANDS_TABLE)
        self._last_commit_id = self._find_last_commit(table)
        rows = read_newest_rows(table, "received_at", tap, ("received_at", "fields"))
        if not len(rows):
            return {}
        self._clock.start_after(rows["received_at"][-1].as_py())
        return {(stream, instance): token for stream, instance, token in json.loads(rows["fields"][-1].as_py())}

    def limit_retries(self) -> None:
        """Retry commits only for a few more seconds, because the tap was stopped."""
        self._deadline = min(self._deadline, time.monotonic() + self._stop_seconds)
        self._is_stopping.set()

    def append(self, batch: Batch) -> None:
        """Commit ``batch`` exactly once; retry until the commit succeeds.

        :raises TapRunningError: if another tap committed since this tap read the positions.
        :raises SinkWriteError: if the tap was stopped and the commit fails.
        """
        rows, commit_id = batch.to_arrow(), f"{self._source} {self._dialect} {uuid.uuid4().hex}"
        properties = {COMMIT_PROPERTY: commit_id} | ({} if batch.has_positions else {WITHOUT_POSITIONS: "true"})
        delay = self._retry_seconds
        while True:
            try:
                self._commit(rows, commit_id, properties)
            except TapRunningError:
                raise
            except Exception as error:  # noqa: BLE001
                # The commit may have succeeded although its answer was lost, so look for it before the next try.
                log.warning("%s could not be written, trying again: %s", COMMANDS_TABLE, type(error).__name__)
                self._wait(delay)
                delay = min(delay * 2, 30.0)
                if self._is_committed(commit_id):
                    self._last_commit_id = commit_id
                    return
            else:
                return

    def _commit(self, rows: pa.Table, commit_id: str, properties: dict[str, str]) -> None:
        table = self._catalog.load_table(COMMANDS_TABLE)
        if self._find_last_commit(table) not in (None, self._last_commit_id):
            raise TapRunningError(
                f"Another tap of {self._source} ({self._dialect}) committed meanwhile, so this tap stops: both would "
                "write the same tokens. Run only one tap. The other tap has the tokens that this one did not write."
            )
        # PyIceberg's own retry would not check for commits of another tap. This property is not stored.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        table.append(rows, snapshot_properties=properties)
        self._commit_count, self._last_commit_id = self._commit_count + 1, commit_id
        if self._commit_count % _COMMITS_PER_EXPIRY == 0:
            # Each commit rewrites the list of all Iceberg snapshots. Maintenance deletes the files of expired ones.
            table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - _SNAPSHOT_RETENTION).commit()

    def _is_committed(self, commit_id: str) -> bool:
        while True:
            try:
                return commit_id in _read_commit_ids(self._catalog.load_table(COMMANDS_TABLE))
            except Exception as error:  # noqa: BLE001
                log.warning("%s cannot be read, trying again: %s", COMMANDS_TABLE, type(error).__name__)
                self._wait(self._retry_seconds)

    def _wait(self, seconds: float) -> None:
        if self._is_stopping.wait(seconds):
            if time.monotonic() >= self._deadline:
                raise SinkWriteError(
                    f"{COMMANDS_TABLE} cannot be written, so it lacks the last received commands. The next tap resumes "
                    "from the last commit, and reads the missed rows that Synapse's database still has."
                )
            time.sleep(_STOPPING_RETRY_SECONDS)

    def _find_last_commit(self, table: Table) -> str | None:
        """Return the ID of the last commit for this source and dialect, if its Iceberg snapshot is not expired."""
        prefix = f"{self._source} {self._dialect} "
        own = [commit_id for commit_id in _read_commit_ids(table) if commit_id.startswith(prefix)]
        return own[-1] if own else None


def _read_commit_ids(table: Table) -> list[str]:
    """Return the IDs of the latest commits of all taps, oldest first."""
    summaries = [snapshot.summary for snapshot in table.snapshots()[-_RECENT_SNAPSHOTS:] if snapshot.summary]
    commit_ids = (summary.additional_properties.get(COMMIT_PROPERTY) for summary in summaries)
    return [commit_id for commit_id in commit_ids if commit_id]
