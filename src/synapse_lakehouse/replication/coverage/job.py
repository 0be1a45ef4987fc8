"""What taps heard, held against bronze: rows of ``audit.replication_coverage``.

Only what was received since the run before is read, and of bronze only the ids that are compared. DuckDB compares:
that takes no JVM, and what does not fit in memory goes to disk.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotIn,
    NotNull,
    Or,
)  # fmt: skip
from pyiceberg.table import Table as IcebergTable

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Contiguity, LoadMode, Stream, Table
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.read.recent_rows import iterate_recent_spans
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.replication.coverage import compare, sql
from synapse_lakehouse.replication.coverage.compare import Heard, Window
from synapse_lakehouse.replication.protocol.rdata_subject import about
from synapse_lakehouse.replication.protocol.row_schemas import SHAPES
from synapse_lakehouse.streams.positions.writers import default_writer

TABLE: Final = "audit.replication_coverage"

Row = dict[str, Any]

_READ: Final = ("received_at", "source", "dialect", "command", "stream", "instance", "token", "previous", "fields")
_IDS: Final = pa.schema(
    [("stream", pa.string()), ("writer", pa.string()), ("id", pa.int64()), ("is_announced", pa.bool_())]
)
_TABLES: Final = """
create table windows (
    number bigint, dialect text, stream text, instance text, listened_from bigint, after bigint, upto bigint,
    bound bigint, read_from timestamptz, read_until timestamptz, leaves text
);
create table ids (stream text, writer text, id bigint, is_announced boolean)
"""
_GONE: Final = {
    Contiguity.UPSERT: "replaced",
    Contiguity.PRUNED: "pruned",
    Contiguity.TRANSIENT: "fetched",
    Contiguity.UNCHECKED: "unchecked",
}
"""Why a row that was announced may be gone, by what becomes of a stream's rows."""
_COUNTS: Final = ("rows", "tokens_received", "tokens_read", "gaps", "token_regressions")
_ONE_BY_ONE: Final = 500
_MEMORY: Final = "1GB"


@dataclass(frozen=True)
class Covering:
    """What one run compares: ``windows``, with all that they need in ``duck``; ``unread``: of the ``commands``."""

    catalog: Catalog
    run: Run
    declared: Catalogue
    commands: IcebergTable
    unread: BooleanExpression
    windows: Sequence[Window]
    duck: duckdb.DuckDBPyConnection

    def announced(self) -> list[Row]:
        """Rows of append-only streams that were announced and are not there, as ``witnesses.ANNOUNCED`` wants them.

        An event's own row tells more than those of the state that came with it.
        """
        rowless = self.duck.execute("select stream, id from rowless where leaves is null").fetchall()
        if not rowless:
            return []
        tokens = [token for _, token in rowless]
        among = And(
            GreaterThanOrEqual(term="token", value=min(tokens)), LessThanOrEqual(term="token", value=max(tokens))
        )
        wanted = And(
            self.unread,
            EqualTo(term="command", value="RDATA"),
            In(term="stream", literals={stream for stream, _ in rowless}),
            In(term="token", literals=tokens) if len(tokens) <= _ONE_BY_ONE else among,
        )
        fields = ("dialect", "stream", "token", "ordinal", "row", "received_at")
        self.duck.from_arrow(_scan(self.commands, wanted, fields)).create("told")
        found = self.duck.execute(
            "select distinct on (told.stream, id) told.stream, id, row, received_at from told join rowless"
            " on told.stream = rowless.stream and told.dialect = rowless.dialect and token = id where leaves is null"
            """ order by told.stream, id, row like '["state%', ordinal"""
        ).fetchall()
        return [
            {"stream": stream, "id": token, "heard_at": heard_at} | told
            for stream, token, row, heard_at in found
            if (told := about(self.declared, stream, row))
        ]

    def rows(self) -> list[Row]:
        """Rows of ``TABLE``; to be asked for once the run's gaps are recorded."""
        gaps = And(EqualTo(term="run_id", value=self.run.run_id), NotNull(term="evidence"))
        told = ("stream", "first_id", "last_id", "class", "explanation")
        found = self.catalog.load_table("audit.stream_gaps").scan(gaps, selected_fields=told).to_arrow()
        self.duck.from_arrow(found).create("gaps")
        self.duck.execute(
            "create temp table witnessed as select stream, least(abs(first_id), abs(last_id)) as first_id,"
            " greatest(abs(first_id), abs(last_id)) as last_id, coalesce(explanation, class) as reason from gaps"
        )
        missing: dict[int, list[Row]] = {}
        for one in self._fetched(sql.MISSING, named=compare.NAMED):
            missing.setdefault(one["number"], []).append(one)
        counted, expected = (
            {one.pop("number"): one for one in self._fetched(query)} for query in (sql.COUNTED, sql.EXPECTED)
        )
        return [
            self._row(one, counted.get(one.number, {}), expected.get(one.number, {}), missing.get(one.number, []))
            for one in self.windows
        ]

    def _row(self, window: Window, counted: Row, expected: Row, missing: list[Row]) -> Row:
        totals = {(one["side"], one["reason"]): one["total"] for one in missing}
        is_copied = _leaves(self.declared, window.stream) != compare.NOT_COPIED
        names = ("dialect", "stream", "instance", "listened_from", "after", "upto", "read_until")
        return {
            **{name: getattr(window, name) for name in names},
            **{name: expected.get(name, 0) if is_copied else None for name in ("ids", "ahead")},
            **{name: counted.get(name, 0) for name in _COUNTS},
            "missed": sum(ids for (side, _), ids in totals.items() if side == "wire"),
            "unexplained": totals.get(("wire", compare.NEVER_ANNOUNCED), 0),
            "rowless": sum(ids for (side, _), ids in totals.items() if side == "lake"),
            "missing": [{name: one[name] for name in ("first_id", "last_id", "side", "reason")} for one in missing],
            "open_since": counted.get("open_since"),
            "snapshot_id": _head(self.commands),
            "measured_at": datetime.now(UTC),
        }

    def _fetched(self, query: str, **given: Any) -> Iterator[Row]:
        found = self.duck.execute(query, given or None)
        names = [column[0] for column in found.description or ()]
        yield from (dict(zip(names, row, strict=True)) for row in found.fetchall())


def covering(
    catalog: Catalog, run: Run, declared: Catalogue, bounds: Mapping[str, int], spill: Path
) -> Covering | None:
    """What there is to compare; None where no tap was ever used, or nothing was heard since the run before.

    :param bounds: by stream, the safe bound of this run as a distance.
    :param spill: folder for what does not fit in memory.
    """
    commands = tables.load_table_or_none(catalog, COMMANDS_TABLE)
    if commands is None or commands.current_snapshot() is None:
        return None
    known = {(row["dialect"], row["stream"], row["instance"]): row for row in latest(catalog)}
    if known and all(row["snapshot_id"] == _head(commands) for row in known.values()):
        return None
    duck = duckdb.connect(config={"temp_directory": str(spill), "memory_limit": _MEMORY})
    duck.execute("set TimeZone = 'UTC'")
    unread = _unread(compare.since(known))
    duck.from_arrow(_scan(commands, unread, _READ)).create("commands")
    taps = {
        dialect: Heard(_positions(first), _positions(last), first_at, last_at)
        for dialect, first_at, last_at, first, last in duck.execute(sql.TAPS).fetchall()
    }
    firsts = {(dialect, *source): token for dialect, *source, token in duck.execute(sql.FIRSTS).fetchall()}
    compared = {one.name: bounds.get(one.name) for one in declared.streams if one.stream_positions}
    windows = list(compare.windows(known, taps, firsts, compared))
    if not windows:
        return None
    duck.execute(_TABLES)
    duck.executemany(
        "insert into windows values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [(*vars(one).values(), _leaves(declared, one.stream)) for one in windows],
    )
    for stream, table, begin in _to_read(declared, windows):
        writer = default_writer({one.instance for one in windows if one.stream == stream.name and one.instance})
        sent = _ids(catalog.load_table(f"bronze.{table.name}"), run.branch, stream, table, begin, writer)
        duck.from_arrow(sent).insert_into("ids")
    duck.execute(sql.PLACED).execute(sql.ROWLESS)
    return Covering(catalog, run, declared, commands, unread, windows, duck)


def latest(catalog: Catalog) -> list[Row]:
    """The rows of ``TABLE`` of the last release whose run compared something."""
    published = store.read_releases(catalog)
    for told in iterate_recent_spans(catalog.load_table(TABLE), "measured_at", columns=("run_id", "measured_at")):
        firsts = {row["run_id"]: row["measured_at"] for row in reversed(told.to_pylist())}
        for one in reversed(published):
            is_told = one.run_id in firsts and firsts[one.run_id] <= one.audited_until
            if is_told and (rows := store.read_release_rows(catalog, TABLE, one)):
                return rows
    return []


def said(rows: Sequence[Mapping[str, Any]]) -> str:
    """``rows`` in a line, for whoever watches the run."""
    received, read, missed = (
        sum(row[name] for row in rows) for name in ("tokens_received", "tokens_read", "unexplained")
    )
    return f"{received:,} tokens received, {read:,} read from the database, {missed:,} missing without an explanation"


def _unread(since: Mapping[str, datetime]) -> BooleanExpression:
    """Commands that the run before did not read, or not to their end."""
    later: list[BooleanExpression] = [
        And(EqualTo(term="dialect", value=dialect), GreaterThanOrEqual(term="received_at", value=begin.isoformat()))
        for dialect, begin in since.items()
    ]
    later.append(NotIn(term="dialect", literals=list(since)))
    return reduce(Or, later)


def _to_read(declared: Catalogue, windows: Sequence[Window]) -> Iterator[tuple[Stream, Table, int]]:
    """Streams and tables whose ids are compared, with the id after which they are."""
    begins: dict[str, int] = {}
    for one in windows:
        if one.bound is not None and one.bound > one.after:
            begins[one.stream] = min(begins.get(one.stream, one.after), one.after)
    for stream, table in declared.stream_table_pairs():
        if stream.name in begins:
            yield stream, table, begins[stream.name]


def _ids(bronze: IcebergTable, branch: str, stream: Stream, table: Table, begin: int, writer: str) -> pa.Table:
    """Columns stream, writer, id, is_announced of the rows beyond ``begin`` as the branch has them, each once.

    :param writer: of rows that name none.
    """
    column, refs = table.streams[stream.name], bronze.refs()
    ref = refs.get(branch) or refs.get("main")
    beyond = LessThan(term=column, value=-begin) if stream.sign == "negative" else GreaterThan(term=column, value=begin)
    fields = tuple(filter(None, (column, table.writer_column)))
    if ref is None:
        return _IDS.empty_table()
    rows = bronze.scan(beyond, selected_fields=fields, snapshot_id=ref.snapshot_id).to_arrow()
    writers = rows[table.writer_column].fill_null(writer) if table.writer_column else pa.repeat(writer, len(rows))
    ids = pc.abs(rows[column])
    is_announced = all(shape.is_announced for shape in SHAPES[stream.name] if shape.table == table.name)
    named = pa.table([pa.repeat(stream.name, len(rows)), writers, ids, pa.repeat(is_announced, len(rows))], schema=_IDS)
    return named.group_by(_IDS.names).aggregate([])


def _scan(commands: IcebergTable, wanted: BooleanExpression, fields: Sequence[str]) -> pa.RecordBatchReader:
    return commands.scan(wanted, selected_fields=tuple(fields)).to_arrow_batch_reader()


def _leaves(declared: Catalogue, name: str) -> str | None:
    """Why a row of a stream that was announced may be gone; None where the stream's gaps tell."""
    if all(table.load is LoadMode.MEASURE for table, _ in declared.backing_tables(name)):
        return compare.NOT_COPIED
    return _GONE.get(declared.stream(name).contiguity)


def _head(commands: IcebergTable) -> int | None:
    head = commands.current_snapshot()
    return head.snapshot_id if head else None


def _positions(fields: str) -> dict[tuple[str, str | None], int]:
    return {(stream, instance): token for stream, instance, token in json.loads(fields)}
