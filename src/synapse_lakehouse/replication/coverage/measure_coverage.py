"""Compare received replication commands with bronze: rows of ``audit.replication_coverage``.

A run reads only the commands received since the previous run, and only the IDs of bronze that it compares.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Contiguity, LoadMode, Stream, Table
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.read.recent_rows import iterate_recent_spans
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.replication.coverage import comparison_sql, token_windows
from synapse_lakehouse.replication.coverage.token_windows import TapPositions, Window
from synapse_lakehouse.replication.protocol.rdata_subject import read_subjects
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS
from synapse_lakehouse.streams.gaps.evidence import ANNOUNCED_COLUMNS
from synapse_lakehouse.streams.positions.configured_writers import default_writer
from synapse_lakehouse.streams.stream_tables import union_all

TABLE: Final = "audit.replication_coverage"
_GAPS_TABLE: Final = "audit.stream_gaps"

Row = dict[str, Any]

_WINDOW_COLUMNS: Final = (
    "number int, dialect string, stream string, instance string, listened_from bigint, after bigint, upto bigint,"
    " bound bigint, read_from timestamp, read_until timestamp, default_writer string, removal_reason string"
)
_REMOVAL_REASONS: Final = {
    Contiguity.UPSERT: "replaced",
    Contiguity.PRUNED: "pruned",
    Contiguity.TRANSIENT: "fetched",
    Contiguity.UNCHECKED: "unchecked",
}
"""Reasons why an announced row may no longer be stored."""
_PERSISTED: Final = ("ids", "rowless")
_COUNTS: Final = ("rows", "tokens_received", "tokens_read", "gaps", "token_regressions")


@dataclass(frozen=True)
class CoverageComparison:
    """The comparison of one run. ``frames`` are the data frames that ``comparison_sql`` names."""

    spark: SparkSession
    declared: Catalogue
    run: Run
    commands_snapshot: int
    windows: Sequence[Window]
    frames: Mapping[str, DataFrame]

    def announced(self) -> DataFrame:
        """Return announced rows of append-only streams that are not stored. Columns: ``evidence.ANNOUNCED_COLUMNS``."""
        rows = self.spark.sql(comparison_sql.ANNOUNCED, None, **self.frames).select("stream", "id", "first.*")
        schema = ", ".join(f"{name} {type_}" for name, type_ in ANNOUNCED_COLUMNS.items())
        return rows.mapInArrow(partial(read_subjects, self.declared), schema)

    def rows(self) -> list[Row]:
        """Return rows of ``TABLE``, and release the cached frames. The run's gaps must be recorded before this call."""
        is_evidenced = (f.col("run_id") == self.run.run_id) & f.col("evidence").isNotNull()
        # PyIceberg wrote the gaps, and Spark may have read the table before.
        self.spark.catalog.refreshTable(_GAPS_TABLE)
        frames = {**self.frames, "gaps": self.spark.table(_GAPS_TABLE).where(is_evidenced)}
        frames["stored"] = self.spark.sql(comparison_sql.STORED, None, **frames)
        parameters = {"max_ranges": token_windows.MAX_RANGES}
        missing: dict[int, list[Row]] = {}
        for range_ in _fetch(self.spark.sql(comparison_sql.MISSING, parameters, **frames)):
            missing.setdefault(range_["number"], []).append(range_)
        counted, expected = (
            {row.pop("number"): row for row in _fetch(self.spark.sql(query, None, **frames))}
            for query in (comparison_sql.COUNTED, comparison_sql.EXPECTED)
        )
        for name in _PERSISTED:
            self.frames[name].unpersist()
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
            "snapshot_id": self.commands_snapshot,
            "measured_at": datetime.now(UTC),
        }


def prepare_comparison(
    spark: SparkSession, catalog: Catalog, run: Run, declared: Catalogue, bounds: Mapping[str, int]
) -> CoverageComparison | None:
    """Read the commands and IDs to compare. Return None if no command was received since the previous run.

    :param bounds: the run's safe bounds by stream, without the sign of negative streams.
    """
    table = tables.load_table_or_none(catalog, COMMANDS_TABLE)
    snapshot = table.current_snapshot() if table else None
    if snapshot is None:
        return None
    previous = {(row["dialect"], row["stream"], row["instance"]): row for row in read_latest_rows(catalog)}
    if previous and all(row["snapshot_id"] == snapshot.snapshot_id for row in previous.values()):
        return None
    commands = spark.read.option("versionAsOf", snapshot.snapshot_id).table(COMMANDS_TABLE)
    commands = commands.where(_is_unread(token_windows.compute_read_start_times(previous)))
    taps = {
        row["dialect"]: TapPositions(_positions(row["first"]), _positions(row["last"]), row["first_at"], row["last_at"])
        for row in _fetch(spark.sql(comparison_sql.TAPS, commands=commands))
    }
    first_tokens = {
        (row["dialect"], row["stream"], row["instance"]): row["token"]
        for row in _fetch(spark.sql(comparison_sql.FIRST_TOKENS, commands=commands))
    }
    compared = {stream.name: bounds.get(stream.name) for stream in declared.streams if stream.stream_positions}
    windows = list(token_windows.compute_windows(previous, taps, first_tokens, compared))
    if not windows:
        return None
    frames = {
        "commands": commands,
        "windows": spark.createDataFrame(
            [_describe_window(declared, window, windows) for window in windows], _WINDOW_COLUMNS
        ),
        "ids": _read_ids(spark, declared, windows).persist(),
    }
    frames["source_commands"] = spark.sql(comparison_sql.SOURCE_COMMANDS, None, **frames)
    frames["rowless"] = spark.sql(comparison_sql.ROWLESS, None, **frames).persist()
    return CoverageComparison(spark, declared, run, snapshot.snapshot_id, windows, frames)


def read_latest_rows(catalog: Catalog) -> list[Row]:
    """Return the rows of ``TABLE`` of the last release whose run compared a source."""
    releases = store.read_releases(catalog)
    for span in iterate_recent_spans(catalog.load_table(TABLE), "measured_at", columns=("run_id", "measured_at")):
        first_times = {row["run_id"]: row["measured_at"] for row in reversed(span.to_pylist())}
        for release in reversed(releases):
            has_rows = release.run_id in first_times and first_times[release.run_id] <= release.accepted_at
            if has_rows and (rows := store.read_release_rows(catalog, TABLE, release)):
                return rows
    return []


def summarize(rows: Sequence[Mapping[str, Any]]) -> str:
    """Summarize rows of ``TABLE`` in one line."""
    received, read, missed = (
        sum(row[name] for row in rows) for name in ("tokens_received", "tokens_read", "unexplained")
    )
    return f"{received:,} tokens received, {read:,} read from the database, {missed:,} missing without an explanation"


def _is_unread(starts: Mapping[str, datetime]) -> Column:
    """Return the condition that the previous run did not compare a command completely."""
    conditions = [(f.col("dialect") == dialect) & (f.col("received_at") >= start) for dialect, start in starts.items()]
    return reduce(or_, conditions, ~f.col("dialect").isin(*starts))


def _describe_window(declared: Catalogue, window: Window, windows: Sequence[Window]) -> tuple[Any, ...]:
    """Return a row of ``windows`` in ``comparison_sql``."""
    writers = {other.instance for other in windows if other.stream == window.stream and other.instance}
    return (*vars(window).values(), default_writer(writers), _removal_reason(declared, window.stream))


def _read_ids(spark: SparkSession, declared: Catalogue, windows: Sequence[Window]) -> DataFrame:
    """Return stream, writer, id and is_announced of the stored rows that the run compares, without repetition."""
    starts: dict[str, int] = {}
    for window in windows:
        if window.bound is not None and window.bound > window.after:
            starts[window.stream] = min(starts.get(window.stream, window.after), window.after)
    frames = [spark.createDataFrame([], "stream string, writer string, id bigint, is_announced boolean")]
    for stream, table in declared.stream_table_pairs():
        if stream.name in starts:
            frames.append(_read_table_ids(spark, stream, table, starts[stream.name]))
    return union_all(frames).distinct()


def _read_table_ids(spark: SparkSession, stream: Stream, table: Table, after: int) -> DataFrame:
    column = table.streams[stream.name]
    is_later = f.col(column) < -after if stream.sign == "negative" else f.col(column) > after
    writer = f.col(table.writer_column) if table.writer_column else f.lit(None).cast("string")
    is_announced = all(schema.is_announced for schema in ROW_SCHEMAS[stream.name] if schema.table == table.name)
    id_ = f.abs(f.col(column)).cast("bigint")
    return (
        spark.table(f"bronze.{table.name}").where(is_later).select(f.lit(stream.name), writer, id_, f.lit(is_announced))
    )


def _fetch(frame: DataFrame) -> list[Row]:
    """Return the rows of a small frame, with times in UTC."""
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def _removal_reason(declared: Catalogue, name: str) -> str | None:
    """Return why an announced row may no longer be stored; None if only the stream's gaps can explain it."""
    if all(table.load is LoadMode.MEASURE for table, _ in declared.backing_tables(name)):
        return token_windows.NOT_COPIED
    return _REMOVAL_REASONS.get(declared.stream(name).contiguity)


def _positions(fields: str) -> dict[tuple[str, str | None], int]:
    return {(stream, instance): token for stream, instance, token in json.loads(fields)}
