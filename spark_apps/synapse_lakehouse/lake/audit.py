"""The audit tables: what was read, measured, judged and published. Append-only and unbranched."""

from typing import Final

_RUN: Final = "run_id string, interval_start timestamp, interval_end timestamp"

TABLES: Final[dict[str, str]] = {
    "audit.snapshots": f"""{_RUN}, branch string, taken_at timestamp, server_name string,
        server_version string, schema_version int, snapshot_xmin bigint, snapshot_xmax bigint, wal_lsn string,
        in_recovery boolean, sequences array<struct<name: string, last_value: bigint, is_called: boolean>>""",
    "audit.ledger": f"""{_RUN}, branch string, table_name string, load string, rows_source bigint, rows_read bigint,
        rows_written bigint, files int, bytes bigint, seconds double, snapshot_id bigint, written_at timestamp""",
    "audit.table_facts": f"""{_RUN}, table_name string, rows bigint, null_keys bigint, duplicate_keys bigint,
        measured_at timestamp""",
    "audit.stream_positions": f"""{_RUN}, stream string, writers map<string, bigint>, missing_writers array<string>,
        linear_minimum bigint, linear_maximum bigint, safe_bound bigint, rule string, previous_bound bigint,
        sequence string, sequence_last_value bigint, sequence_is_called boolean, largest_id bigint,
        measured_at timestamp""",
    "audit.stream_facts": f"""{_RUN}, stream string, table_name string, rows bigint, rows_in_interval bigint,
        ids bigint, null_ids bigint, duplicate_ids bigint, late_ids bigint, first_id bigint, last_id bigint,
        rows_by_writer map<string, bigint>, measured_at timestamp""",
    "audit.checks": f"""{_RUN}, stage string, suite string, expectation string, subject string, severity string,
        success boolean, observed string, checked_at timestamp""",
    "audit.releases": f"""release bigint, {_RUN}, branch string, tag string, server_name string,
        tables map<string, bigint>, positions map<string, bigint>, views map<string, string>, checks_passed int,
        checks_warned int, published_at timestamp""",
    "audit.leases": "holder string, branch string, action string, until timestamp, at timestamp",
}
"""Columns of each audit table in Spark's DDL. Times are UTC.

``snapshots``: one row a run, the state of the source inside the exported snapshot. ``ledger``: one row per run and
copied table; ``bytes`` of Parquet. ``table_facts``: keys as Spark counted them on the run's branch; ``duplicate_keys``
counts rows beyond the first of a key. ``stream_positions``: one row per run and stream; ``rule`` names what gave
``safe_bound``: ``configured`` (all configured writers have positions), ``assumed`` (the writers were guessed from the
data), ``missing_writer`` (a configured writer has no row: no bound) or ``no_positions`` (Synapse keeps none).
``stream_facts``: one row per run, stream and backing table; ``late_ids`` is NULL where the stream cannot be checked.
``checks``: one row per expectation judged; ``severity`` is ``fail`` or ``warn``. ``releases``: one row a release;
``tables`` maps a table to its published snapshot, ``positions`` a stream to its safe bound. ``leases``: who may move
main (``lake/lease.py``).
"""
