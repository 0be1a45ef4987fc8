"""``bronze.replication_commands``: what was heard, append-only and unbranched.

A commit holds what was heard since the one before and, in its last row, the position of every source: both or neither
are there, so whoever goes on from the positions lands each token once. Where no position moved and nobody is connected,
as of a server that refuses the tap, the last row is left out: it is what tells that a tap listens.
"""

import json
import math
import re
import threading
import time
import uuid
from collections.abc import Mapping
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
from synapse_lakehouse.replication.tap.command_log import record
from synapse_lakehouse.replication.tap.follower import Item
from synapse_lakehouse.replication.tap.redact_fields import Keeping
from synapse_lakehouse.replication.tap_liveness import CUT_OFF, FLUSH

log = get_printable_logger(__name__)

_AGAIN_SECONDS: Final = 0.5
_LAST_SECONDS: Final = 5.0
"""So long a commit that fails is tried again once the tap is to end."""
_LOOKED_BACK: Final = 50
_TIDIED_EVERY: Final = 200
_KEPT: Final = timedelta(hours=1)
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_LONE: Final = re.compile("[\ud800-\udfff]")


def _json(value: Any) -> str:
    # JSON may hold halves of a surrogate pair; UTF-8, and so the lake, may not.
    text = _ENCODER.encode(value)
    return text if text.isascii() else _LONE.sub("\N{REPLACEMENT CHARACTER}", text)


class _Clock:
    """Microseconds since the epoch, later at every call: the order of what was heard survives a clock set back."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> int:
        self._last = max(int(time.time() * 1_000_000), self._last + 1)
        return self._last

    def later_than(self, moment: datetime) -> None:
        """Go on after what another process heard."""
        self._last = max(self._last, int(moment.timestamp() * 1_000_000) + 1)


_now: Final = _Clock()


class Batch:
    """Rows of ``COMMANDS`` on their way, by column."""

    def __init__(self, keeping: Keeping, source: str, dialect: str) -> None:
        self._keeping = keeping
        self._source = source
        self._dialect = dialect
        self._columns: tuple[list[Any], ...] = tuple([] for _ in COMMANDS_SCHEMA)
        self.since: float | None = None
        self.has_end = False

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, item: Item) -> None:
        """Take what was heard just now."""
        now = _now()
        match item:
            case Update(stream, instance, token, rows, is_read):
                source = "database" if is_read else self._source
                for ordinal, row in enumerate(rows):
                    kept_row = _json(self._keeping.of(stream, row))
                    self._add(now, source, "RDATA", stream, instance, token, ordinal, None, kept_row, None)
            case Gap(stream, instance, after, upto, found, cause):
                about = _json({"found": found, "cause": cause})
                self._add(now, self._source, "GAP", stream, instance, upto, None, after, None, about)
            case c.Position(stream, instance, previous, token):
                self._add(now, self._source, "POSITION", stream, instance, token, None, previous, None, None)
            case _:
                fields = record(item)
                command = fields.pop("command")
                self._add(now, self._source, command, None, None, None, None, None, None, _json(fields))

    def end(self, positions: Mapping[Source, int]) -> None:
        """Close with where each source stands now."""
        self.has_end = True
        listed = _json([[stream, instance, token] for (stream, instance), token in positions.items()])
        self._add(_now(), self._source, "TAP", None, None, None, None, None, None, listed)

    def arrow(self) -> pa.Table:
        """The rows, with the columns of ``COMMANDS_SCHEMA``."""
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(self._columns, COMMANDS_SCHEMA, strict=True)],
            schema=COMMANDS_SCHEMA,
        )

    def _add(self, now: int, source: str, command: str, *values: Any) -> None:
        if self.since is None:
            self.since = time.monotonic()
        for column, value in zip(self._columns, (now, source, self._dialect, command, *values), strict=True):
            column.append(value)


class TapRunningError(LakehouseError):
    """Another tap of the same source and dialect has landed meanwhile: both would land the same tokens."""


class SinkWriteError(LakehouseError):
    """The tap ended before what it heard last could be written."""


class Landing:
    """Where the commands of one tap go; of one ``source`` and ``dialect`` there is only one tap at a time."""

    def __init__(self, catalog: Catalog, source: str, dialect: str) -> None:
        self._catalog = catalog
        self._source = source
        self._dialect = dialect
        self._commits = 0
        self._last: str | None = None
        self._is_ending = threading.Event()
        self._until = math.inf
        tables.ensure_commands_table(catalog)

    def positions(self) -> dict[Source, int]:
        """Positions at the end of the last commit, after which no other tap may commit; none if there was none."""
        tap = And(
            EqualTo(term="command", value="TAP"),
            EqualTo(term="source", value=self._source),
            EqualTo(term="dialect", value=self._dialect),
        )
        table = self._catalog.load_table(COMMANDS_TABLE)
        self._last = self._landed(table)
        told = read_newest_rows(table, "received_at", tap, ("received_at", "fields"))
        if not len(told):
            return {}
        _now.later_than(told["received_at"][-1].as_py())
        return {(stream, at): token for stream, at, token in json.loads(told["fields"][-1].as_py())}

    def end_soon(self) -> None:
        """Try no longer what does not succeed within seconds: the tap is to end."""
        self._until = min(self._until, time.monotonic() + _LAST_SECONDS)
        self._is_ending.set()

    def append(self, batch: Batch) -> None:
        """Commit ``batch``, once, however often it takes.

        :raises TapRunningError: when another tap has landed since this one read the positions.
        :raises SinkWriteError: when it did not succeed and the tap is to end.
        """
        rows, flush, pause = batch.arrow(), f"{self._source} {self._dialect} {uuid.uuid4().hex}", 1.0
        properties = {FLUSH: flush} if batch.has_end else {FLUSH: flush, CUT_OFF: "true"}
        while True:
            try:
                table = self._catalog.load_table(COMMANDS_TABLE)
                if self._landed(table) not in (None, self._last):
                    raise TapRunningError(
                        f"Another tap of {self._source} ({self._dialect}) landed meanwhile, so this one stops: both "
                        "would land the same tokens. Run only one; what this one did not land, that one has."
                    )
                # A retry of PyIceberg's own would not look who committed in between. Not stored, so others may retry.
                table.metadata.properties["commit.retry.num-retries"] = "0"
                table.append(rows, snapshot_properties=properties)
                self._commits, self._last = self._commits + 1, flush
                if self._commits % _TIDIED_EVERY == 0:
                    # Every commit writes down all snapshots; the files of those given up are deleted by maintenance.
                    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - _KEPT).commit()
            except TapRunningError:
                raise
            except Exception as error:  # noqa: BLE001
                # Whatever went wrong, what was heard must not be lost, nor written twice if it was written after all.
                log.warning("%s could not be written, trying again: %s", COMMANDS_TABLE, type(error).__name__)
                self._wait(pause)
                pause = min(pause * 2, 30.0)
                if self._has(flush):
                    self._last = flush
                    return
            else:
                return

    def _has(self, flush: str) -> bool:
        while True:
            try:
                return flush in _flushes(self._catalog.load_table(COMMANDS_TABLE))
            except Exception as error:  # noqa: BLE001
                log.warning("%s cannot be read, trying again: %s", COMMANDS_TABLE, type(error).__name__)
                self._wait(1.0)

    def _wait(self, seconds: float) -> None:
        """Wait before another try."""
        if self._is_ending.wait(seconds):
            if time.monotonic() >= self._until:
                raise SinkWriteError(
                    f"{COMMANDS_TABLE} cannot be written, so what was heard last is not there. The next tap goes on "
                    "from "
                    "what was written before, and reads from Synapse's database what that still has."
                )
            time.sleep(_AGAIN_SECONDS)

    def _landed(self, table: Table) -> str | None:
        """The last commit of a tap of this source and dialect, where it is still known."""
        own = [one for one in _flushes(table) if one.startswith(f"{self._source} {self._dialect} ")]
        return own[-1] if own else None


def _flushes(table: Table) -> list[str]:
    """The latest commits of taps, oldest first."""
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    return [told for one in summaries[-_LOOKED_BACK:] if one and (told := one.additional_properties.get(FLUSH))]
