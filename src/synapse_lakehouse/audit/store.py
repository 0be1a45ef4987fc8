"""The audit tables: what was read, measured, judged, published and compressed. Append-only and unbranched.

Rows of several attempts at an interval stand side by side, told apart by ``run_id``; the attempt that readers see is
the one named in ``audit.releases``. Times are UTC.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from synapse_lakehouse.audit.releases import RELEASES_TABLE, Release
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE, COMPRESSION_RUNS_TABLE
from synapse_lakehouse.iceberg.read.recent_rows import get_column_bounds, read_planned_files
from synapse_lakehouse.iceberg.write import append as write_append

_STRING, _LONG, _INT, _BOOLEAN, _DOUBLE = pa.string(), pa.int64(), pa.int32(), pa.bool_(), pa.float64()
_TIME: Final = pa.timestamp("us", tz="UTC")
_BY_NAME: Final = pa.map_(_STRING, _LONG)
_SNAPSHOT: Final = {"snapshot_xmin": _LONG, "snapshot_xmax": _LONG, "wal_lsn": _STRING} | {
    "system_identifier": _LONG,
    "database_oid": _LONG,
    "timeline": _INT,
}
_RUN: Final = {"run_id": _STRING, "interval_start": _TIME, "interval_end": _TIME}

_RANGE: Final = {"first_page": _LONG, "last_page": _LONG, "rows": _LONG} | dict.fromkeys(
    ("hash_read", "hash_written"), _STRING
)

_COMPRESSED_HOW: Final = {"room_id": _STRING, "strategy": _STRING} | {
    "default_levels": _STRING,
    "chunk_size": _LONG,
    "max_chain": _LONG,
}

AUDIT_SCHEMAS: Final[dict[str, pa.Schema]] = {
    name: pa.schema(list(columns.items()))
    for name, columns in {
        # One row a run: the state of the source inside the exported snapshot.
        "audit.snapshots": _RUN
        | {"branch": _STRING, "taken_at": _TIME, "server_name": _STRING, "server_version": _STRING}
        | {"schema_version": _INT}
        | _SNAPSHOT
        | {
            "in_recovery": _BOOLEAN,
            "sequences": pa.list_(pa.struct([("name", _STRING), ("last_value", _LONG), ("is_called", _BOOLEAN)])),
            # Tables that could not be copied, with the reason; tables and columns that the catalogue never heard of.
            "drifted": pa.map_(_STRING, _STRING),
            "novelties": pa.list_(_STRING),
            # When the attempt at the run began by the clock that all its rows are written by; taken_at is the source's.
            "began_at": _TIME,
        },
        # One row per run and copied table: what was read (extent: whole, rest, changes or nothing), what became of it,
        # and from which snapshot of the source. files and bytes are the table's afterwards; the hashes are of the rows
        # as they were received, and as they were read again from their files, of all together and of each range of the
        # source's pages that was read for itself (last_page NULL: to the table's end; first_page NULL: rows that
        # maintenance read again by their keys). heap_pages: pages that the source's table took.
        "audit.ledger": _RUN
        | {"branch": _STRING, "table_name": _STRING, "load": _STRING, "rows_source": _LONG, "rows_read": _LONG}
        | {"rows_written": _LONG, "files": _INT, "bytes": _LONG, "seconds": _DOUBLE, "snapshot_id": _LONG}
        | {"written_at": _TIME, "extent": _STRING, "rows_outdated": _LONG, "rows_deleted": _LONG}
        | {"statement": _STRING, "hash_read": _STRING, "hash_written": _STRING}
        | {"ranges": pa.list_(pa.struct(list(_RANGE.items())))}
        | _SNAPSHOT
        | {"heap_pages": _LONG},
        # One row per key that a published table had and the source no longer has; key is a JSON object.
        "audit.deletions": _RUN | {"table_name": _STRING, "key": _STRING, "reason": _STRING, "deleted_at": _TIME},
        # One row per run and compared slice of a table: ranges of keys with rows, how many of them differed (NULL:
        # the budget cut it off), and seconds that the source spent on it.
        "audit.parity": _RUN
        | {"table_name": _STRING, "slice": _INT, "slices": _INT, "ranges": _INT, "rows": _LONG, "differing": _INT}
        | {"seconds": _DOUBLE, "compared_at": _TIME},
        # One row per run and slice of a table in which ranges of keys differed: they were read again, in some seconds.
        "audit.repairs": _RUN
        | {"table_name": _STRING, "slice": _INT, "ranges": pa.list_(_STRING), "rows_lake": _LONG, "rows_source": _LONG}
        | {"rows_added": _LONG, "rows_changed": _LONG, "rows_removed": _LONG, "seconds": _DOUBLE}
        | {"repaired_at": _TIME},
        # One row per run and copied table, counted at an Iceberg snapshot, which runs share while a table is unchanged;
        # duplicate_keys: rows beyond the first of a key.
        "audit.table_facts": _RUN
        | {"table_name": _STRING, "rows": _LONG, "null_keys": _LONG, "duplicate_keys": _LONG, "measured_at": _TIME}
        | {"snapshot_id": _LONG},
        # One row per run and stream; rule names what gave the safe bound (streams/positions.py), vanished_writers which
        # of the missing_writers had a position once, gaps counts the ids
        # of audit.stream_gaps by class, shared_ids those that are in several tables and should be in one; faults
        # names the first ones. closed_ids: so many the run closed (NULL: there was no bound, or is none), of which
        # rowless_ids have no row and no explanation. went_back: what is behind where the release before saw it, in
        # words, and nobody has acknowledged (streams/going_back.py).
        "audit.stream_positions": _RUN
        | {"stream": _STRING, "writers": _BY_NAME, "missing_writers": pa.list_(_STRING), "linear_minimum": _LONG}
        | {"linear_maximum": _LONG, "safe_bound": _LONG, "rule": _STRING, "previous_bound": _LONG}
        | {"sequence": _STRING, "sequence_last_value": _LONG, "sequence_is_called": _BOOLEAN, "largest_id": _LONG}
        | {"unknown_writers": pa.list_(_STRING), "gaps": _BY_NAME, "shared_ids": _LONG, "faults": pa.list_(_STRING)}
        | {"closed_ids": _LONG, "rowless_ids": _LONG, "vanished_writers": pa.list_(_STRING), "measured_at": _TIME}
        | {"went_back": pa.list_(_STRING)},
        # One row per stream and look at it while Synapse runs (streams/watch.py); no run belongs to it.
        "audit.stream_watch": {"stream": _STRING, "watched_at": _TIME, "writers": _BY_NAME}
        | {"missing_writers": pa.list_(_STRING), "safe_bound": _LONG, "rule": _STRING, "handed_out": _LONG}
        | {"open_since": _TIME, "unmoved_since": pa.map_(_STRING, _TIME), "vanished": pa.list_(_STRING)}
        | {"furthest_writers": _BY_NAME, "furthest_handed_out": _LONG},
        # One row per run and range of ids that the run found missing, late, repeated or changed (streams/gaps.py), in
        # table_name where one table is concerned. An interval's gaps are those of all its published runs.
        "audit.stream_gaps": _RUN
        | {"stream": _STRING, "table_name": _STRING, "first_id": _LONG, "last_id": _LONG, "class": _STRING}
        | {"witness": _STRING, "explanation": _STRING, "flags": pa.list_(_STRING), "measured_at": _TIME},
        # One row per run, stream and backing table; late_ids is NULL where the stream cannot be checked. reread_ids: so
        # many that were closed the run read again and compared.
        "audit.stream_facts": _RUN
        | {"stream": _STRING, "table_name": _STRING, "rows": _LONG, "rows_in_interval": _LONG, "ids": _LONG}
        | {"null_ids": _LONG, "duplicate_ids": _LONG, "late_ids": _LONG, "first_id": _LONG, "last_id": _LONG}
        | {"reread_ids": _LONG, "rows_by_writer": _BY_NAME, "measured_at": _TIME},
        # One row per expectation judged; severity is fail or warn.
        "audit.checks": _RUN
        | {"stage": _STRING, "suite": _STRING, "expectation": _STRING, "subject": _STRING, "severity": _STRING}
        | {"success": _BOOLEAN, "observed": _STRING, "checked_at": _TIME},
        # One row per run and check of gold.state_integrity (state/integrity.py): how many findings there were, and how
        # many of them are of severity fail or warn.
        "audit.integrity": _RUN | {"check_name": _STRING, "findings": _LONG, "serious": _LONG, "counted_at": _TIME},
        # One row per run that found news of a tap, and per source of it: a writer of a stream (NULL: all) as the tap of
        # a dialect tells it. Tokens over after and up to upto were compared; ids counts those with rows (NULL: none of
        # the stream's tables is copied), ahead further ones up to the safe bound, to which the tap has not come. heard
        # and read (from the database) count tokens, rows their RDATA. unheard: ids with rows that the tap never got,
        # unexplained: those that no GAP explains. rowless: tokens without a row. missing: the first ranges of both, by
        # the side on which they are missing, wire or lake. went_back: commands that name a token behind an earlier one.
        # read_until, open_since: from where the next run reads the commands, snapshot_id: as which this one found them
        # (replication/coverage.py).
        "audit.replication_coverage": _RUN
        | {"dialect": _STRING, "stream": _STRING, "instance": _STRING, "listened_from": _LONG, "after": _LONG}
        | {"upto": _LONG, "ids": _LONG, "ahead": _LONG, "rows": _LONG, "heard": _LONG, "read": _LONG}
        | {"gaps": _LONG, "unheard": _LONG, "unexplained": _LONG, "rowless": _LONG, "went_back": _LONG}
        | {
            "missing": pa.list_(
                pa.struct([("first_id", _LONG), ("last_id", _LONG), ("side", _STRING), ("why", _STRING)])
            ),
        }
        | {"read_until": _TIME, "open_since": _TIME, "snapshot_id": _LONG, "measured_at": _TIME},
        # One row when an incident begins, one when it ends (alerts/incidents.py), and the same again with the sink that
        # took the news; at is when that happened. consequence: what follows while it goes on.
        "audit.incidents": {"id": _STRING, "at": _TIME, "scope": _STRING, "kind": _STRING, "subject": _STRING}
        | {"said": _STRING, "begins": _BOOLEAN, "page": _STRING, "sink": _STRING, "consequence": _STRING},
        # One row per run and view that dbt tried: the SELECT that it is.
        "audit.views": _RUN | {"view_name": _STRING, "sql": _STRING, "tried_at": _TIME},
        # One row a release: tables maps a table to its published snapshot, positions a stream to its safe bound;
        # partial names bronze tables that kept their former content.
        "audit.releases": {"release": _LONG}
        | _RUN
        | {"branch": _STRING, "tag": _STRING, "server_name": _STRING, "tables": _BY_NAME, "positions": _BY_NAME}
        | {"views": pa.map_(_STRING, _STRING), "checks_passed": _INT, "checks_warned": _INT, "published_at": _TIME}
        | {"partial": pa.list_(_STRING), "accepted_at": _TIME},
        # One row per run of the compressor and room, planned from a release; rows and bytes are those of the room in
        # state_groups_state, bytes_needed what is needed until VACUUM; skipped: why the room is not compressed;
        # newest_group: the id of the newest group that the plan is about.
        COMPRESSION_PLAN_TABLE: _RUN
        | {"release": _LONG}
        | _COMPRESSED_HOW
        | {"groups": _LONG, "groups_to_rewrite": _LONG, "rows_before": _LONG, "rows_after": _LONG}
        | {"bytes_before": _LONG, "bytes_after": _LONG, "rows_to_delete": _LONG, "rows_to_insert": _LONG}
        | {"bytes_needed": _LONG, "longest_chain_before": _LONG, "longest_chain_after": _LONG}
        | {"skipped": _STRING, "planned_at": _TIME, "newest_group": _LONG},
        # One row per run of the compressor and room that it was to write in Synapse's database, as soon as it was done
        # with it; outcome as rewriting.recording.Outcome has it, and error says why. A room that was found wrong later,
        # or that was tried again, has a further row, which counts. A run by hand has no interval. chain and read_ms:
        # groups that Synapse reads for the state of one, the mean, and milliseconds that it takes, the median, of
        # groups_sampled of the room. disk_bytes: what the state of all rooms takes on the database's disk.
        COMPRESSION_RUNS_TABLE: _RUN
        | _COMPRESSED_HOW
        | {"outcome": _STRING, "error": _STRING, "rows_before": _LONG, "rows_after": _LONG, "bytes_before": _LONG}
        | {"bytes_after": _LONG, "groups_rewritten": _LONG, "groups_left": _LONG, "longest_chain": _LONG}
        | {"seconds": _DOUBLE, "longest_lock_ms": _DOUBLE, "undo": pa.list_(_STRING), "finished_at": _TIME}
        | {"groups_sampled": _LONG, "chain_before": _DOUBLE, "chain_after": _DOUBLE}
        | {"read_ms_before": _DOUBLE, "read_ms_after": _DOUBLE}
        | {"disk_bytes_before": _LONG, "disk_bytes_after": _LONG},
        # The log of who may move main (lake/lease.py).
        "audit.leases": {"holder": _STRING, "branch": _STRING, "action": _STRING, "until": _TIME, "at": _TIME},
    }.items()
}
"""Columns of each audit table."""

_NEVER: Final = datetime.fromtimestamp(0, UTC)


def append_audit_rows(catalog: Catalog, table: str, rows: list[dict[str, Any]], run: Run | None = None) -> None:
    """Append ``rows`` (columns of ``TABLES[table]``; absent ones are NULL), stamped with ``run`` where one is given."""
    stamped = get_run_columns(run) if run else {}
    write_append.append_rows(
        catalog.load_table(table), pa.Table.from_pylist([stamped | row for row in rows], schema=AUDIT_SCHEMAS[table])
    )


def get_run_columns(run: Run) -> dict[str, Any]:
    """Columns that say which run a row is of."""
    return {"run_id": run.run_id, "interval_start": run.start, "interval_end": run.end}


_KEYS: Final = {
    "audit.snapshots": (),
    "audit.ledger": ("table_name",),
    "audit.table_facts": ("table_name",),
    "audit.stream_positions": ("stream",),
    "audit.stream_facts": ("stream", "table_name"),
    "audit.parity": ("table_name", "slice"),
    "audit.repairs": ("table_name", "slice"),
    "audit.views": ("view_name",),
    COMPRESSION_PLAN_TABLE: ("room_id",),
    COMPRESSION_RUNS_TABLE: ("room_id",),
    "audit.integrity": ("check_name",),
    "audit.replication_coverage": ("dialect", "stream", "instance"),
}


def read_run_rows(catalog: Catalog, table: str, run_id: str) -> list[dict[str, Any]]:
    """The rows of a run's last attempt, which began when it looked at the source last. A task that was retried wrote
    its rows again: the last ones count."""
    return _last(table, _of_attempt(catalog, table, run_id))


def read_release_rows(catalog: Catalog, table: str, release: Release) -> list[dict[str, Any]]:
    """The rows of a release's run as they were when it was published. A run that was cleared wrote others since, of
    which perhaps nothing was published."""
    return _last(table, _of_attempt(catalog, table, release.run_id, release.audited_until))


def read_release_ledger(catalog: Catalog, release: Release) -> list[dict[str, Any]]:
    """The rows of ``audit.ledger`` of what a release holds, by the snapshots: who compacts it writes them anew."""
    table, held = "audit.ledger", release.tables
    rows = _by_time(catalog, table, release.run_id)
    return _last(table, (one for one in rows if one["snapshot_id"] == held.get(f"bronze.{one['table_name']}")))


def is_copy_complete(catalog: Catalog, run: Run) -> bool:
    """Whether the run's last copy was finished: then its ledger is written."""
    return catalog.table_exists("audit.ledger") and bool(_of_attempt(catalog, "audit.ledger", run.run_id))


def read_run_checks(catalog: Catalog, run_id: str) -> list[dict[str, Any]]:
    """The checks of a run's last attempt, as each stage was judged last."""
    rows = _of_attempt(catalog, "audit.checks", run_id)
    last = {row["stage"]: row["checked_at"] for row in rows}
    return [row for row in rows if row["checked_at"] == last[row["stage"]]]


def _of_attempt(catalog: Catalog, table: str, run_id: str, until: datetime | None = None) -> list[dict[str, Any]]:
    """Rows of the last attempt at a run that began until then, oldest first; earlier versions did not say when."""
    looks = _until(until, "audit.snapshots", _by_time(catalog, "audit.snapshots", run_id))
    began, moment = looks[-1]["began_at"] if looks else None, _moment(table)
    rows = looks[-1:] if table == "audit.snapshots" else _until(until, table, _by_time(catalog, table, run_id))
    return [row for row in rows if None in (began, row[moment]) or row[moment] >= began]


def _until(until: datetime | None, table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    moment = _moment(table)
    return [row for row in rows if None in (until, row[moment]) or row[moment] <= until]


def _by_time(catalog: Catalog, table: str, run_id: str) -> list[dict[str, Any]]:
    scan = catalog.load_table(table).scan(row_filter=EqualTo(term="run_id", value=run_id))
    # A lake of an earlier version lacks columns until its next run.
    rows: list[dict[str, Any]] = [
        dict.fromkeys(AUDIT_SCHEMAS[table].names) | row for row in scan.to_arrow().to_pylist()
    ]
    return sorted(rows, key=lambda row: [row[name] or _NEVER for name in _moments(table)])


def _moment(table: str) -> str:
    """The column that tells when a row was written."""
    return _moments(table)[0]


def _moments(table: str) -> list[str]:
    return [str(field.name) for field in reversed(AUDIT_SCHEMAS[table]) if field.type == _TIME]


def _last(table: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of rows with the same key the last one."""
    return list({tuple(row[key] for key in _KEYS[table]): row for row in rows}.values())


def read_latest_release(catalog: Catalog) -> Release | None:
    """What readers see, if anything was published. One file is read, however many releases there are."""
    table = catalog.load_table(RELEASES_TABLE)
    files = [(get_column_bounds(table, one, "release"), one) for one in table.scan().plan_files()]
    newest = max((numbers[1] for numbers, _ in files if numbers), default=None)
    rows = read_planned_files(
        table, [one for numbers, one in files if numbers is None or numbers[1] == newest]
    ).to_pylist()
    return Release.of_row(max(rows, key=lambda row: row["release"])) if rows else None


def iterate_newest_releases(catalog: Catalog) -> Iterator[Release]:
    """All releases. The newest is read alone, as mostly nobody asks for more."""
    if newest := read_latest_release(catalog):
        yield newest
        yield from (one for one in reversed(read_releases(catalog)) if one.number < newest.number)


def read_releases(catalog: Catalog) -> list[Release]:
    """All releases, oldest first."""
    rows = catalog.load_table(RELEASES_TABLE).scan().to_arrow().to_pylist()
    return sorted(map(Release.of_row, rows), key=lambda release: release.number)
