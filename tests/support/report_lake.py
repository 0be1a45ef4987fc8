"""A lake that is written without a JVM. It has all tables of the report page, with a few rows of hostile text."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, open_catalog
from synapse_lakehouse.iceberg.write.tables import ensure_audit_tables
from tests.support import hostile_text

TEXTS: Final = (*hostile_text.TEXTS, "</script><script>window.hacked=1</script>", "'\"><b onmouseover=hacked()>")
NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
RUNS: Final = [Run(f"run_{n}", NOON + timedelta(days=n - 1), NOON + timedelta(days=n)) for n in range(3)]
_TIME: Final = pa.timestamp("us", tz="UTC")
TABLES: Final[Mapping[str, pa.Schema]] = {
    name: pa.schema([(column, kinds[kind]) for column, kind in columns])
    for kinds in ({"s": pa.string(), "i": pa.int64(), "t": _TIME},)
    for name, columns in {
        "gold.events": [("event_id", "s"), ("room_id", "s"), ("type", "s"), ("received_at", "t"), ("json_bytes", "i")],
        "silver.rooms": [("room_id", "s"), ("name", "s")],
        "gold.state_group_sizes": [("room_id", "s"), ("state_group", "i"), ("delta_rows", "i"), ("chain_length", "i"),
                                   ("events", "i")],
        "gold.state_integrity": [("check_name", "s"), ("severity", "s"), ("room_id", "s"), ("subject", "s")],
        "gold.federation_delay": [("server", "s"), ("hour", "t"), ("events", "i"), ("median_ms", "i"), ("p95_ms", "i"),
                                  ("clock_skew_ms", "i")],
        "gold.silent_servers": [("server", "s"), ("last_hour", "t"), ("silent_hours", "i"),
                                ("longest_pause_hours", "i"), ("events", "i")],
        "gold.reports": [("kind", "s"), ("report_id", "i"), ("received_at", "t"), ("room_id", "s"), ("event_id", "s"),
                         ("reported_user_id", "s"), ("reported_server", "s"), ("reporter_id", "s")],
        "gold.room_cleanup": [("room_id", "s"), ("joined_members", "i"), ("pending_local_users", "i"),
                              ("unforgotten_local_users", "i"), ("last_event_at", "t"), ("stored_rows", "i"),
                              ("estimated_bytes", "i"), ("media_events", "i")],
        "bronze.background_updates": [("update_name", "s"), ("depends_on", "s"), ("ordering", "i"),
                                      ("progress_json", "s"), ("progress_digest", "s")],
        "bronze.events": [("event_id", "s"), ("room_id", "s")],
        "bronze.rooms": [("room_id", "s")],
        "bronze.users": [("name", "s"), ("creation_ts", "i")],
        "bronze.erased_users": [("user_id", "s")],
    }.items()
}  # fmt: skip
_LAG: Final = (
    "select 'redis' as dialect, room_id as stream, 'writer' as instance, timestamptz '2026-11-20 10:00:00+00' as hour,"
    " 1::bigint as announced, 5::bigint as median_ms, 9::bigint as p95_ms, 9::bigint as max_ms from gold.events"
)


@contextmanager
def open_report_lake(settings: Settings) -> Iterator[Catalog]:
    """Create a lake with empty tables of the page; yield its catalog."""
    with closing(open_catalog(settings)) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        ensure_audit_tables(catalog)
        for name, columns in TABLES.items():
            catalog.create_table(name, columns)
            # A table has no Iceberg snapshot before its first append.
            catalog.load_table(name).append(pa.Table.from_pylist([], schema=columns))
        yield catalog


def publish(catalog: Catalog, number: int, texts: Sequence[str]) -> None:
    """Append one row a text to each table, and publish the tables as release ``number``."""
    run, published_at = RUNS[number], RUNS[number].end + timedelta(minutes=2)
    append_rows(catalog, number, texts)
    if texts:
        _append_audit_rows(catalog, number, texts)
    tables = {name: catalog.load_table(name).refs()["main"].snapshot_id for name in TABLES}
    row = {"release": number, "server_name": "example.org", "tables": sorted(tables.items()), "positions": []}
    checks = {"checks_passed": 5, "checks_warned": 0, "published_at": published_at, "accepted_at": published_at}
    views = [("gold.replication_lag", _LAG)]
    store.append_audit_rows(catalog, "audit.releases", [row | checks | {"views": views}], run)


def append_rows(catalog: Catalog, number: int, texts: Sequence[str]) -> None:
    """Append one row a text to each table, except to audit tables."""
    values = {pa.int64(): number, _TIME: RUNS[number].end}
    for name, columns in TABLES.items():
        if name == "silver.rooms" and number > 1:
            continue
        rows = [
            {field.name: values.get(field.type, f"{text} {number}") for field in columns} | _fixed_values(name, text)
            for text in texts
        ]
        catalog.load_table(name).append(pa.Table.from_pylist(rows, schema=columns))


def _fixed_values(name: str, text: str) -> dict[str, Any]:
    # The same room ID joins the tables.
    fixed: dict[str, Any] = {"silver.rooms": {"room_id": text}, "gold.state_group_sizes": {"room_id": text}}.get(
        name, {}
    )
    if name == "gold.state_integrity":
        fixed = {"check_name": "event_lost", "severity": "fail"}
    if name == "gold.room_cleanup":
        fixed = {"pending_local_users": 0}
    return fixed | ({"room_id": text} if name in {"gold.events", "bronze.events", "bronze.rooms"} else {})


def _append_audit_rows(catalog: Catalog, number: int, texts: Sequence[str]) -> None:
    run, at = RUNS[number], RUNS[number].end
    times = {"began_at": at, "written_at": at, "measured_at": at, "counted_at": at, "checked_at": at}
    watch_times = [(at - timedelta(minutes=15 * n), n) for n in range(4)]
    rows: dict[str, list[dict[str, Any]]] = {
        "audit.snapshots": [times | {"server_version": "16.14", "schema_version": 94}],
        "audit.ledger": [times | {"table_name": t, "rows_read": 5, "rows_written": 5, "seconds": 1.5} for t in texts],
        "audit.stream_positions": [
            times | {"stream": text, "safe_bound": 5, "sequence_last_value": 9, "sequence_is_called": True,
                     "rule": "configured", "closed_ids": 3, "missing_writers": [text]}
            for text in texts
        ],
        "audit.upgrade_checks": [
            times | {"subject": "sequences", "fault": text, "advice": text, "checked": 1} for text in texts
        ],
        "audit.index_checks": [
            times | {"table_name": t, "index_name": t, "pass": 2, "entries_checked": 5, "faults": 1, "finished_at": at}
            for t in texts
        ],
        "audit.task_costs": [times | {"task": t, "seconds": 2.0, "cpu_seconds": 3.0} for t in texts],
        "audit.integrity": [times | {"check_name": "event_lost", "serious": 4, "new_findings": 1}],
        "audit.relation_sizes": [
            times | {"kind": "table", "schema_name": "public", "name": text, "bytes": 10_000 * number, "index_bytes": 9}
            for text in texts
        ] + [times | {"kind": "lake", "name": "warehouse", "bytes": 10_000 * number, "free_bytes": 50_000}],
        "gold.compression_plan": [
            {"room_id": text, "strategy": "best", "rows_before": 9, "rows_after": 4, "bytes_before": 900,
             "bytes_after": 400, "planned_at": at} for text in texts
        ],
    }  # fmt: skip
    for name, table_rows in rows.items():
        store.append_audit_rows(catalog, name, table_rows, run)
    watch_rows = [
        {"stream": text, "watched_at": moment, "safe_bound": 1, "last_allocated_id": 1 + n,
         "unchanged_since": [(text, moment - timedelta(hours=3))]}
        for text in texts for moment, n in watch_times
    ]  # fmt: skip
    store.append_audit_rows(catalog, "audit.stream_watch", watch_rows)
    incident = {"scope": "test", "kind": "lost-ids", "description": hostile_text.ALL, "consequence": "", "page": ""}
    ended = incident | {"id": f"0 {number}", "subject": "ended"}
    incidents = [ended | {"at": at, "begins": True}, ended | {"at": at + timedelta(hours=1), "begins": False}]
    incidents += [incident | {"id": text, "at": at, "subject": text, "begins": True} for text in texts[:3]]
    missing = incident | {"id": "page", "kind": "page-missing", "subject": "the page", "at": at, "begins": True}
    store.append_audit_rows(catalog, "audit.incidents", [*incidents, missing])
