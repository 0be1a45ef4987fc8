"""Audit rows of a healthy or a faulty run, and the result of validating bronze with them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from expectations import bronze_suite, gx_validation
from expectations.validation_result import ValidationResult
from synapse_lakehouse.catalogue import Catalogue, Column, Stream, Table
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings

DAY = datetime(2026, 11, 17, tzinfo=UTC)
RUN = Run("scheduled__2026-11-18T00:00:00+00:00", DAY, DAY + timedelta(days=1))

Rows = dict[str, list[dict[str, Any]]]
Plant = Callable[[Rows], None]


def table(name: str, columns: str, **declared: Any) -> Table:
    """Return a declared table. All of its columns are bigints."""
    described = (
        Column(name=column, data_type="bigint", description=column, source_type="bigint") for column in columns.split()
    )
    defaults = {"description": name, "key_enforced": True, "load": "append", "streams": {}, "writer_column": None}
    return Table(name=name, columns=tuple(described), **defaults | declared)


def stream(name: str, **declared: Any) -> Stream:
    """Return a declared stream."""
    names = {"name": name, "description": name, "sequence": f"{name}_seq", "why": name}
    defaults = {"stream_positions": name, "writers": "events", "contiguity": "append_only"}
    return Stream(**names | defaults | declared)


DECLARED = Catalogue(
    oldest_release="1.151",
    oldest_schema_version=94,
    newest_schema_version=94,
    streams=(
        stream("events", gap_budget=50),
        stream("backfill", sign="negative"),
        stream("caches", stream_positions=None, contiguity="unchecked"),
    ),
    tables=(
        table(
            "events",
            "event_id stream_ordering",
            primary_key=("event_id",),
            streams={"events": "stream_ordering", "backfill": "stream_ordering"},
        ),
        table(
            "deltas",
            "stream_id room_id",
            primary_key=("stream_id", "room_id"),
            nullable_key=("room_id",),
            streams={"events": "stream_id"},
            repeats_ids=True,
        ),
        table("invalidations", "stream_id", primary_key=(), load="measure", streams={"caches": "stream_id"}),
    ),
)


def healthy() -> Rows:
    """Return the audit rows of a healthy run of ``DECLARED``."""

    def position(name: str, bound: int | None, previous: int | None, **other: Any) -> dict[str, Any]:
        bounds = {"stream": name, "rule": "configured", "safe_bound": bound, "previous_bound": previous}
        sequence: dict[str, Any] = {"sequence_last_value": 1300, "sequence_is_called": True, "largest_id": bound}
        sequence |= {"gaps": [("rolled_back", 3)], "shared_ids": 0, "faults": [], "regressions": []}
        sequence |= {"provisional_gaps": [], "previous_rule": None if previous is None else "configured"}
        closed = None if previous is None else abs(bound or 0) - abs(previous)
        sequence |= {"closed_ids": closed, "rowless_ids": None if closed is None else 3}
        return (
            bounds
            | sequence
            | {"writers": [("main", bound)], "missing_writers": [], "unknown_writers": [], "vanished_writers": []}
            | other
        )

    def facts(name: str, table_name: str, **other: Any) -> dict[str, Any]:
        return (
            {"stream": name, "table_name": table_name, "null_ids": 0, "duplicate_ids": 0, "late_ids": 0}
            | {"reread_ids": 0}
            | other
        )

    counts = {"rows_source": 1250, "rows_read": 1250, "rows_written": 1250, "hash_read": "5e", "hash_written": "5e"}
    return {
        "snapshots": [{"drifted_tables": [], "absent_objects": [], "unknown_objects": [], "schema_version": 94}],
        "ledger": [{"table_name": name} | counts for name in ("events", "deltas")],
        "table_facts": [
            {"table_name": name, "rows": 1250, "null_keys": 0, "duplicate_keys": 0} for name in ("events", "deltas")
        ],
        "stream_positions": [
            position("events", 1200, 1100),
            position("backfill", -90, -80),
            position("caches", None, None, rule="no_positions", writers=[]),
        ],
        "stream_facts": [
            facts("events", "events"),
            facts("events", "deltas", duplicate_ids=70, reread_ids=12),
            facts("backfill", "events"),
            facts("caches", "invalidations", duplicate_ids=None, late_ids=None),
        ],
    }


def change(rows: str, at: int, **values: Any) -> Plant:
    """Return a fault: changed values in an audit row."""
    return lambda metrics: metrics[rows][at].update(values)


def remove(rows: str, at: int) -> Plant:
    """Return a fault: a missing audit row."""
    return lambda metrics: metrics[rows].__delitem__(at)


def validate_run(settings: Settings, plant: Plant | None = None, declared: Catalogue = DECLARED) -> ValidationResult:
    """Return the result of validating a healthy run, or a run with a fault."""
    rows = healthy()
    if plant:
        plant(rows)
    metrics = bronze_suite.collect_metrics(declared, **rows)
    drifted = dict(rows["snapshots"][0]["drifted_tables"])
    checks, page = gx_validation.validate_metrics(
        settings, RUN, "bronze", bronze_suite.build_suite(declared, drifted), metrics, datetime.now(UTC)
    )
    return ValidationResult("bronze", checks, page)
