"""Compare received replication commands with bronze: rows of ``audit.replication_coverage``.

A run reads only the commands received since the previous run, and only the IDs of bronze that it compares. DuckDB
compares them, without a JVM; it spills to disk if memory is too small.
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
from synapse_lakehouse.replication.coverage import comparison_sql, token_windows
from synapse_lakehouse.replication.coverage.token_windows import TapPositions, Window
from synapse_lakehouse.replication.protocol.rdata_subject import read_subject
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS
from synapse_lakehouse.streams.positions.configured_writers import default_writer

TABLE: Final = "audit.replication_coverage"

Row = dict[str, Any]

_COMMAND_COLUMNS: Final = (
    "received_at",
    "source",
    "dialect",
    "command",
    "stream",
    "instance",
    "token",
    "previous",
    "fields",
)
_ID_SCHEMA: Final = pa.schema(
    [("stream", pa.string()), ("writer", pa.string()), ("id", pa.int64()), ("is_announced", pa.bool_())]
)
_TABLES: Final = """
create table windows (
    number bigint, dialect text, stream text, instance text, listened_from bigint, after bigint, upto bigint,
    bound bigint, read_from timestamptz, read_until timestamptz, removal_reason text
);
create table ids (stream text, writer text, id bigint, is_announced boolean)
"""
_REMOVAL_REASONS: Final = {
    Contiguity.UPSERT: "replaced",
    Contiguity.PRUNED: "pruned",
    Contiguity.TRANSIENT: "fetched",
    Contiguity.UNCHECKED: "unchecked",
}
"""Reasons why an announced row may no longer be stored."""
_COUNTS: Final = ("rows", "tokens_received", "tokens_read", "gaps", "token_regressions")
_MAX_LISTED_TOKENS: Final = 500
_MEMORY_LIMIT: Final = "1GB"


@dataclass(frozen=True)
class CoverageComparison:
    """The comparison of one run. ``duck`` is the DuckDB connection with the data of ``windows``.

    ``unread`` selects the ``commands`` that no earlier run compared.
    """

    catalog: Catalog
    run: Run
    declared: Catalogue
    commands: IcebergTable
    unread: BooleanExpression
    windows: Sequence[Window]
    duck: duckdb.DuckDBPyConnection

    def announced(self) -> list[Row]:
        """Return announced rows of append-only streams that are not stored. Columns: ``evidence.ANNOUNCED_COLUMNS``.

        An event's own row is preferred to rows of its state changes, because the own row contains more.
        """
        rowless = self.duck.execute("select stream, id from rowless where removal_reason is null").fetchall()
        if not rowless:
            return []
        tokens = [token for _, token in rowless]
        token_range = And(
            GreaterThanOrEqual(term="token", value=min(tokens)), LessThanOrEqual(term="token", value=max(tokens))
        )
        condition = And(
            self.unread,
            EqualTo(term="command", value="RDATA"),
            In(term="stream", literals={stream for stream, _ in rowless}),
            In(term="token", literals=tokens) if len(tokens) <= _MAX_LISTED_TOKENS else token_range,
        )
        columns = ("dialect", "stream", "token", "ordinal", "row", "received_at")
        self.duck.from_arrow(_scan(self.commands, condition, columns)).create("rdata")
        rows = self.duck.execute(
            "select distinct on (rdata.stream, id) rdata.stream, id, row, received_at from rdata join rowless"
            " on rdata.stream = rowless.stream and rdata.dialect = rowless.dialect and token = id"
            """ where removal_reason is null order by rdata.stream, id, row like '["state%', ordinal"""
        ).fetchall()
        return [
            {"stream": stream, "id": token, "received_at": received_at} | subject
            for stream, token, row, received_at in rows
            if (subject := read_subject(self.declared, stream, row))
        ]

    def rows(self) -> list[Row]:
        """Return rows of ``TABLE``. Call it after the run's gaps were recorded."""
        with_evidence = And(EqualTo(term="run_id", value=self.run.run_id), NotNull(term="evidence"))
        columns = ("stream", "first_id", "last_id", "class", "explanation")
        gaps = self.catalog.load_table("audit.stream_gaps").scan(with_evidence, selected_fields=columns).to_arrow()
        self.duck.from_arrow(gaps).create("gaps")
        self.duck.execute(
            "create temp table evidenced as select stream, least(abs(first_id), abs(last_id)) as first_id,"
            " greatest(abs(first_id), abs(last_id)) as last_id, coalesce(explanation, class) as reason from gaps"
        )
        missing: dict[int, list[Row]] = {}
        for range_ in self._fetch(comparison_sql.MISSING, max_ranges=token_windows.MAX_RANGES):
            missing.setdefault(range_["number"], []).append(range_)
        counted, expected = (
            {row.pop("number"): row for row in self._fetch(query)}
            for query in (comparison_sql.COUNTED, comparison_sql.EXPECTED)
        )
        return [self._row(window, counted, expected, missing.get(window.number, [])) for window in self.windows]

    def _row(
        self, window: Window, all_counted: Mapping[int, Row], all_expected: Mapping[int, Row], missing: list[Row]
    ) -> Row:
        counted, expected = all_counted.get(window.number, {}), all_expected.get(window.number, {})
        totals = {(range_["side"], range_["reason"]): range_["total"] for range_ in missing}
        is_copied = _removal_reason(self.declared, window.stream) != token_windows.NOT_COPIED
        names = ("dialect", "stream", "instance", "listened_from", "after", "upto", "read_until")
        return {
            **{name: getattr(window, name) for name in names},
            **{name: expected.get(name, 0) if is_copied else None for name in ("ids", "ahead")},
            **{name: counted.get(name, 0) for name in _COUNTS},
            "missed": sum(ids for (side, _), ids in totals.items() if side == "wire"),
            "unexplained": totals.get(("wire", token_windows.NEVER_ANNOUNCED), 0),
            "rowless": sum(ids for (side, _), ids in totals.items() if side == "lake"),
            "missing": [
                {name: range_[name] for name in ("first_id", "last_id", "side", "reason")} for range_ in missing
            ],
            "open_since": counted.get("open_since"),
            "snapshot_id": _current_snapshot_id(self.commands),
            "measured_at": datetime.now(UTC),
        }

    def _fetch(self, query: str, **parameters: Any) -> Iterator[Row]:
        result = self.duck.execute(query, parameters or None)
        names = [column[0] for column in result.description or ()]
        yield from (dict(zip(names, row, strict=True)) for row in result.fetchall())


def prepare_comparison(
    catalog: Catalog, run: Run, declared: Catalogue, bounds: Mapping[str, int], spill: Path
) -> CoverageComparison | None:
    """Read the commands and IDs to compare. Return None if no command was received since the previous run.

    :param bounds: the run's safe bounds by stream, without the sign of negative streams.
    :param spill: folder for data that does not fit in memory.
    """
    commands = tables.load_table_or_none(catalog, COMMANDS_TABLE)
    if commands is None or commands.current_snapshot() is None:
        return None
    previous = {(row["dialect"], row["stream"], row["instance"]): row for row in read_latest_rows(catalog)}
    snapshot_id = _current_snapshot_id(commands)
    if previous and all(row["snapshot_id"] == snapshot_id for row in previous.values()):
        return None
    duck = duckdb.connect(config={"temp_directory": str(spill), "memory_limit": _MEMORY_LIMIT})
    duck.execute("set TimeZone = 'UTC'")
    unread = _unread_commands(token_windows.compute_read_start_times(previous))
    duck.from_arrow(_scan(commands, unread, _COMMAND_COLUMNS)).create("commands")
    taps = {
        dialect: TapPositions(_positions(first), _positions(last), first_at, last_at)
        for dialect, first_at, last_at, first, last in duck.execute(comparison_sql.TAPS).fetchall()
    }
    first_tokens = {
        (dialect, *source): token for dialect, *source, token in duck.execute(comparison_sql.FIRST_TOKENS).fetchall()
    }
    compared = {stream.name: bounds.get(stream.name) for stream in declared.streams if stream.stream_positions}
    windows = list(token_windows.compute_windows(previous, taps, first_tokens, compared))
    if not windows:
        return None
    duck.execute(_TABLES)
    duck.executemany(
        "insert into windows values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [(*vars(window).values(), _removal_reason(declared, window.stream)) for window in windows],
    )
    for stream, table, after in _tables_to_read(declared, windows):
        instances = {window.instance for window in windows if window.stream == stream.name and window.instance}
        bronze, writer = catalog.load_table(f"bronze.{table.name}"), default_writer(instances)
        duck.from_arrow(_read_ids(bronze, run.branch, stream, table, after, writer)).insert_into("ids")
    duck.execute(comparison_sql.CREATE_SOURCE_COMMANDS).execute(comparison_sql.CREATE_ROWLESS)
    return CoverageComparison(catalog, run, declared, commands, unread, windows, duck)


def read_latest_rows(catalog: Catalog) -> list[Row]:
    """Return the rows of ``TABLE`` of the last release whose run compared a source."""
    releases = store.read_releases(catalog)
    for span in iterate_recent_spans(catalog.load_table(TABLE), "measured_at", columns=("run_id", "measured_at")):
        first_times = {row["run_id"]: row["measured_at"] for row in reversed(span.to_pylist())}
        for release in reversed(releases):
            has_rows = release.run_id in first_times and first_times[release.run_id] <= release.audited_until
            if has_rows and (rows := store.read_release_rows(catalog, TABLE, release)):
                return rows
    return []


def summarize(rows: Sequence[Mapping[str, Any]]) -> str:
    """Summarize rows of ``TABLE`` in one line."""
    received, read, missed = (
        sum(row[name] for row in rows) for name in ("tokens_received", "tokens_read", "unexplained")
    )
    return f"{received:,} tokens received, {read:,} read from the database, {missed:,} missing without an explanation"


def _unread_commands(starts: Mapping[str, datetime]) -> BooleanExpression:
    """Return the filter of commands that the previous run did not compare completely."""
    conditions: list[BooleanExpression] = [
        And(EqualTo(term="dialect", value=dialect), GreaterThanOrEqual(term="received_at", value=start.isoformat()))
        for dialect, start in starts.items()
    ]
    conditions.append(NotIn(term="dialect", literals=list(starts)))
    return reduce(Or, conditions)


def _tables_to_read(declared: Catalogue, windows: Sequence[Window]) -> Iterator[tuple[Stream, Table, int]]:
    """Yield the streams and tables to compare, with the ID after which rows are read."""
    starts: dict[str, int] = {}
    for window in windows:
        if window.bound is not None and window.bound > window.after:
            starts[window.stream] = min(starts.get(window.stream, window.after), window.after)
    for stream, table in declared.stream_table_pairs():
        if stream.name in starts:
            yield stream, table, starts[stream.name]


def _read_ids(bronze: IcebergTable, branch: str, stream: Stream, table: Table, after: int, writer: str) -> pa.Table:
    """Return distinct stream, writer, id and is_announced of the rows after the ID ``after`` on the branch.

    :param writer: the writer of rows that do not name their writer.
    """
    column, refs = table.streams[stream.name], bronze.refs()
    ref = refs.get(branch) or refs.get("main")
    if ref is None:
        return _ID_SCHEMA.empty_table()
    is_negative = stream.sign == "negative"
    is_later = LessThan(term=column, value=-after) if is_negative else GreaterThan(term=column, value=after)
    selected = tuple(filter(None, (column, table.writer_column)))
    rows = bronze.scan(is_later, selected_fields=selected, snapshot_id=ref.snapshot_id).to_arrow()
    writers = rows[table.writer_column].fill_null(writer) if table.writer_column else pa.repeat(writer, len(rows))
    is_announced = all(schema.is_announced for schema in ROW_SCHEMAS[stream.name] if schema.table == table.name)
    columns = [pa.repeat(stream.name, len(rows)), writers, pc.abs(rows[column]), pa.repeat(is_announced, len(rows))]
    return pa.table(columns, schema=_ID_SCHEMA).group_by(_ID_SCHEMA.names).aggregate([])


def _scan(commands: IcebergTable, condition: BooleanExpression, columns: Sequence[str]) -> pa.RecordBatchReader:
    return commands.scan(condition, selected_fields=tuple(columns)).to_arrow_batch_reader()


def _removal_reason(declared: Catalogue, name: str) -> str | None:
    """Return why an announced row may no longer be stored; None if only the stream's gaps can explain it."""
    if all(table.load is LoadMode.MEASURE for table, _ in declared.backing_tables(name)):
        return token_windows.NOT_COPIED
    return _REMOVAL_REASONS.get(declared.stream(name).contiguity)


def _current_snapshot_id(commands: IcebergTable) -> int | None:
    snapshot = commands.current_snapshot()
    return snapshot.snapshot_id if snapshot else None


def _positions(fields: str) -> dict[tuple[str, str | None], int]:
    return {(stream, instance): token for stream, instance, token in json.loads(fields)}
