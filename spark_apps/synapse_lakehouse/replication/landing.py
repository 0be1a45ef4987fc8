"""``bronze.replication_commands``: what was heard, append-only and unbranched.

A commit holds what was heard since the one before and, in its last row, the position of every source: both or neither
are there, so whoever goes on from the positions lands each token once.
"""

import json
import logging
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from synapse_lakehouse.lake import tables
from synapse_lakehouse.lake.catalog import COMMANDS
from synapse_lakehouse.lake.recent import newest
from synapse_lakehouse.replication import commands as c
from synapse_lakehouse.replication.following import Item
from synapse_lakehouse.replication.keeping import Keeping
from synapse_lakehouse.replication.records import record
from synapse_lakehouse.replication.updates import Gap, Source, Update

log = logging.getLogger(__name__)

SCHEMA: Final = pa.schema(
    [
        ("received_at", pa.timestamp("us", tz="UTC")),
        ("source", pa.string()),
        ("dialect", pa.string()),
        ("command", pa.string()),
        ("stream", pa.string()),
        ("instance", pa.string()),
        ("token", pa.int64()),
        ("ordinal", pa.int32()),
        ("previous", pa.int64()),
        ("row", pa.string()),
        ("fields", pa.string()),
    ]
)
"""``source``: ``redis`` or ``tcp``, or ``database`` for what was not heard and read there. ``token``, ``ordinal``: of
RDATA, the row's token and its place among the token's rows, from 0. ``row``: JSON. ``fields``: of other commands, JSON.
Besides the protocol's own commands there are ``GAP``, what was not heard, and ``TAP``, the positions at the end of a
commit."""

_FLUSH: Final = "lakehouse.replication.flush"
_LOOKED_BACK: Final = 50
_TIDIED_EVERY: Final = 200
_KEPT: Final = timedelta(hours=1)
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class Batch:
    """Rows of ``COMMANDS`` on their way, by column."""

    def __init__(self, keeping: Keeping, source: str, dialect: str) -> None:
        self._keeping = keeping
        self._source = source
        self._dialect = dialect
        self._columns: tuple[list[Any], ...] = tuple([] for _ in SCHEMA)
        self.since: float | None = None

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, item: Item) -> None:
        """Take what was heard just now."""
        now = int(time.time() * 1_000_000)
        match item:
            case Update(stream, instance, token, rows, is_read):
                source = "database" if is_read else self._source
                for ordinal, row in enumerate(rows):
                    kept_row = _JSON.encode(self._keeping.of(stream, row))
                    self._add(now, source, "RDATA", stream, instance, token, ordinal, None, kept_row, None)
            case Gap(stream, instance, after, upto, found, cause):
                about = _JSON.encode({"found": found, "cause": cause})
                self._add(now, self._source, "GAP", stream, instance, upto, None, after, None, about)
            case c.Position(stream, instance, previous, token):
                self._add(now, self._source, "POSITION", stream, instance, token, None, previous, None, None)
            case _:
                fields = record(item)
                command = fields.pop("command")
                self._add(now, self._source, command, None, None, None, None, None, None, _JSON.encode(fields))

    def end(self, positions: Mapping[Source, int]) -> None:
        """Close with where each source stands now."""
        listed = _JSON.encode([[stream, instance, token] for (stream, instance), token in positions.items()])
        now = int(time.time() * 1_000_000)
        self._add(now, self._source, "TAP", None, None, None, None, None, None, listed)

    def arrow(self) -> pa.Table:
        """The rows, with the columns of ``SCHEMA``."""
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(self._columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def _add(self, now: int, source: str, command: str, *values: Any) -> None:
        if self.since is None:
            self.since = time.monotonic()
        for column, value in zip(self._columns, (now, source, self._dialect, command, *values), strict=True):
            column.append(value)


class Landing:
    """Where the commands of one tap go; of one ``source`` and ``dialect`` there is only one tap at a time."""

    def __init__(self, catalog: Catalog, source: str, dialect: str) -> None:
        self._catalog = catalog
        self._source = source
        self._dialect = dialect
        self._commits = 0
        tables.ensure_commands(catalog, SCHEMA)

    def positions(self) -> dict[Source, int]:
        """Positions at the end of the last commit; none if there was none."""
        tap = And(
            EqualTo(term="command", value="TAP"),
            EqualTo(term="source", value=self._source),
            EqualTo(term="dialect", value=self._dialect),
        )
        told = newest(self._catalog.load_table(COMMANDS), "received_at", tap, ("received_at", "fields"))["fields"]
        return {(stream, at): token for stream, at, token in json.loads(told[-1].as_py())} if len(told) else {}

    def append(self, batch: Batch) -> None:
        """Commit ``batch``, once, however often it takes."""
        rows, flush, pause = batch.arrow(), uuid.uuid4().hex, 1.0
        while True:
            try:
                table = self._catalog.load_table(COMMANDS)
                table.append(rows, snapshot_properties={_FLUSH: flush})
                self._commits += 1
                if self._commits % _TIDIED_EVERY == 0:
                    # Every commit writes down all snapshots; the files of those given up are deleted by maintenance.
                    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - _KEPT).commit()
            except Exception as error:  # noqa: BLE001
                # Whatever went wrong, what was heard must not be lost, nor written twice if it was written after all.
                log.warning("%s could not be written, trying again: %s", COMMANDS, type(error).__name__)
                time.sleep(pause)
                pause = min(pause * 2, 30.0)
                if self._has(flush):
                    return
            else:
                return

    def _has(self, flush: str) -> bool:
        while True:
            try:
                return flush in _flushes(self._catalog.load_table(COMMANDS))
            except Exception as error:  # noqa: BLE001
                log.warning("%s cannot be read, trying again: %s", COMMANDS, type(error).__name__)
                time.sleep(1)


def _flushes(table: Table) -> set[str]:
    summaries = [snapshot.summary for snapshot in table.snapshots()[-_LOOKED_BACK:]]
    return {summary.additional_properties.get(_FLUSH, "") for summary in summaries if summary}
