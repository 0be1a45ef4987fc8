"""Content of a small lake: two releases, a view, and the branch of a failed run."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run

DAY = datetime(2026, 11, 17, tzinfo=UTC)
RUNS = [Run(f"run of day {n}", DAY + timedelta(days=n), DAY + timedelta(days=n + 1)) for n in range(3)]
EVENTS = pa.schema([("event_id", pa.string()), ("room_id", pa.string()), ("received_ts", pa.int64())])
BUSY = "select room_id, count(*) as events from gold.events group by room_id"


def publish_release(catalog: Catalog, number: int, run: Run) -> None:
    tables = {}
    for name in ("bronze.events", "gold.events"):
        table = catalog.load_table(name)
        table.append(_rows(number, 10 * number))
        tables[name] = table.refs()["main"].snapshot_id
    counts = {"rows_source": 10, "rows_read": 10, "rows_written": 10 * number, "bytes": 2048, "written_at": run.end}
    copied = {"table_name": "events", "load": "append", "snapshot_id": tables["bronze.events"]}
    store.append_audit_rows(catalog, "audit.ledger", [copied | counts], run)
    events = {"stream": "events", "rule": "configured", "writers": [("p1", 29), ("p2", 31)], "safe_bound": 29}
    called = {"sequence": "events_stream_seq", "sequence_last_value": 33, "sequence_is_called": True}
    caches = {"stream": "caches", "rule": "no_positions", "sequence": "caches_seq", "sequence_last_value": 1}
    uncalled = {"sequence_is_called": False, "writers": [], "missing_writers": []}
    positions = [row | {"measured_at": run.end} for row in (events | called, caches | uncalled)]
    store.append_audit_rows(catalog, "audit.stream_positions", positions, run)
    _append_gap(catalog, run, "rolled_back", 10 * number, 10 * number + 2)
    _append_gap(catalog, run, "in_flight", 30 + number, 30 + number)
    check = {"stage": "bronze", "subject": "events", "expectation": "no late rows", "observed": "3 late rows"}
    of_first_try = check | {"subject": "previous try", "severity": "warn", "success": False, "checked_at": run.start}
    of_last_try = check | {"severity": "warn", "success": number == 1, "checked_at": run.end}
    store.append_audit_rows(catalog, "audit.checks", [of_first_try, of_last_try], run)
    measured = {
        "dialect": "redis",
        "stream": "events",
        "tokens_received": 1200,
        "tokens_read": 3,
        "unexplained": 0,
        "measured_at": run.end,
    }
    coverage = [measured | {"instance": "p1"}, measured | {"instance": "p2", "tokens_read": 4}]
    coverage.append(coverage[0] | {"stream": "receipts", "tokens_received": 100, "tokens_read": 0})
    first_try = [row | {"tokens_received": 7, "measured_at": run.start} for row in coverage]
    store.append_audit_rows(catalog, "audit.replication_coverage", [*first_try, *coverage] if number == 2 else [], run)
    release = {"release": number, "branch": run.branch, "tag": run.tag, "server_name": "example.org"}
    views = [("gold.busy_rooms", BUSY), ("gold.a_busiest", "select * from gold.busy_rooms where events > 10")]
    summary = {"checks_passed": 40, "checks_warned": number - 1, "positions": [("events", 29)]}
    summary |= {"published_at": run.end, "accepted_at": run.end}
    store.append_audit_rows(
        catalog, "audit.releases", [release | summary | {"tables": list(tables.items()), "views": views}], run
    )


def publish_after_emptied(catalog: Catalog, names: Sequence[str], folder: str) -> None:
    """Publish a release in which the tables ``names`` are empty, then the latest release again: all its rows are new.

    ``catalog`` is a copy. New files are written to ``folder``, because another catalog owns the tables' folders.
    """
    for name in ("audit.releases", *names):
        paths = {f"write.{kind}.path": f"{folder}/{name}/{kind}" for kind in ("data", "metadata")}
        catalog.load_table(name).transaction().set_properties(paths).commit_transaction()
    *_, latest = catalog.load_table("audit.releases").scan().to_arrow().sort_by("release").to_pylist()
    tables = dict(latest["tables"])
    for name in names:
        table = catalog.load_table(name)
        table.delete()
        tables[name] = table.refs()["main"].snapshot_id
    emptied = {"release": latest["release"] + 1, "tables": sorted(tables.items())}
    store.append_audit_rows(catalog, "audit.releases", [latest | emptied, latest | {"release": latest["release"] + 2}])


def leave_branch(catalog: Catalog, run: Run) -> None:
    table = catalog.load_table("bronze.events")
    table.manage_snapshots().create_branch(table.refs()["main"].snapshot_id, run.branch).commit()
    table.append(_rows(3, 5), branch=run.branch)
    store.append_audit_rows(catalog, "audit.snapshots", [{"branch": run.branch, "began_at": run.end}], run)

    _append_gap(catalog, run, "lost", 7, 7, evidence="accepted_row", table_name="events")


def _append_gap(catalog: Catalog, run: Run, kind: str, first: int, last: int, **columns: str) -> None:
    gap = {"stream": "events", "class": kind, "first_id": first, "last_id": last, "flags": [], "measured_at": run.end}
    store.append_audit_rows(catalog, "audit.stream_gaps", [gap | columns], run)


def _rows(number: int, count: int) -> pa.Table:
    rows = [{"event_id": f"${number}_{n}", "room_id": f"!{number}:x", "received_ts": n} for n in range(count)]
    return pa.Table.from_pylist(rows, schema=EVENTS)
