"""Metric families: name, documentation, labels and samples. Pure.

Labels contain names of streams, writers, tables, checks and the like, never message content, user IDs or addresses.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily

from synapse_lakehouse.alerts.incidents import WARNING_KINDS, IncidentEvent, IncidentKind, list_open_incidents
from synapse_lakehouse.alerts.integrity_kinds import kind_of_check
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS
from synapse_lakehouse.sizes.autovacuum import find_overdue_vacuum
from synapse_lakehouse.sizes.summary import SizeSummary

MAX_RELATIONS: Final = 100
"""Number of relations with metrics of their own. These are the largest relations."""

_PREFIX: Final = "synapse_lakehouse_"
_DAY_SECONDS: Final = 86400

Samples = Iterable[tuple[Sequence[str], float | datetime | None]]


def gauge(name: str, documentation: str, samples: Samples, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    """Return a gauge. Times become seconds since 1970; samples without a value are left out."""
    family = GaugeMetricFamily(_PREFIX + name, documentation, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value.timestamp() if isinstance(value, datetime) else value)
    return family


def release_families(release: Release | None, overdue_after: timedelta) -> Iterator[GaugeMetricFamily]:
    """Yield the newest release, its checks and the age from which it is overdue. Without a release, the number is 0."""
    limit = [((), overdue_after.total_seconds())]
    yield gauge("release_overdue_after_seconds", "Age from which the newest release is overdue.", limit)
    yield gauge("release_number", "Number of the newest release.", [((), release.number if release else 0)])
    if release is None:
        return
    yield gauge("release_timestamp_seconds", "Time of the newest release.", [((), release.published_at)])
    checks = [(["passed"], release.checks_passed), (["warned"], release.checks_warned)]
    yield gauge("release_checks", "Checks of the newest release by result.", checks, ["result"])
    yield gauge("release_partial_tables", "Tables that the release could not copy.", [((), len(release.partial))])


def run_families(rows: Mapping[str, int | None], seconds: Mapping[str, float]) -> Iterator[GaugeMetricFamily]:
    """Yield rows and durations of the run of the newest release.

    :param rows: number of rows by the columns of the ledger.
    :param seconds: duration by task.
    """
    for column, documentation in (
        ("rows_source", "Rows of all copied tables in Synapse's database."),
        ("rows_read", "Rows that the last published run read from Synapse's database."),
        ("rows_written", "Rows that the last published run wrote to bronze."),
    ):
        yield gauge(f"run_{column}", documentation, [((), rows.get(column))])
    samples = [([task], duration) for task, duration in seconds.items()]
    documentation = "Time from the end of the previous task to the end of the task, in the last published run."
    yield gauge("run_task_duration_seconds", documentation, samples, ["task"])


def stream_families(streams: Sequence[Mapping[str, Any]]) -> Iterator[GaugeMetricFamily]:
    """Yield positions of streams, from rows of ``audit.stream_positions`` and ``audit.stream_watch``."""
    for name, documentation, column in (
        (
            "stream_safe_bound",
            "ID up to which the stream is complete; see stream_bound_is_provisional.",
            "safe_bound",
        ),
        (
            "stream_bound_is_provisional",
            "1 if the safe bound depends on writers that were learned from the data.",
            "is_provisional",
        ),
        ("stream_last_allocated_id", "Last ID that the stream's sequence allocated.", "last_allocated_id"),
        ("stream_open_ids", "Allocated stream IDs beyond the safe bound.", "open_ids"),
        ("stream_missing_writers", "Configured or learned stream writers without a position.", "missing_writers"),
        ("stream_observed_timestamp_seconds", "Time of the stream's observation.", "observed_at"),
        ("stream_open_since_timestamp_seconds", "Time since which the first open ID is open.", "open_since"),
    ):
        yield gauge(name, documentation, [([row["stream"]], row.get(column)) for row in streams], ["stream"])
    writers = [
        ([row["stream"], writer], position)
        for row in streams
        for writer, position in (row.get("writers") or {}).items()
    ]
    yield gauge("stream_writer_position", "Persisted position of a stream writer.", writers, ["stream", "writer"])
    gaps = [([row["stream"], kind], count) for row in streams for kind, count in (row.get("gaps") or {}).items()]
    yield gauge("stream_gap_ids", "Stream IDs without a row by gap class.", gaps, ["stream", "class"])


def integrity_families(rows: Sequence[Mapping[str, Any]]) -> Iterator[GaugeMetricFamily]:
    """Yield findings of the checks of Synapse's database, from rows of ``audit.integrity``."""
    for name, documentation, column in (
        ("integrity_findings", "Findings of a check of Synapse's database.", "findings"),
        ("integrity_serious_findings", "Findings of severity fail or warn.", "serious"),
    ):
        yield gauge(name, documentation, [([row["check_name"]], row[column]) for row in rows], ["check"])
    # A row that another version of the lakehouse wrote may have a check that this version lacks.
    kinds = dict.fromkeys((row["check_name"] for row in rows), IncidentKind.INTEGRITY)
    kinds |= {check.name: kind_of_check(check) for check in INTEGRITY_CHECKS}
    samples = [
        ([row["check_name"], kinds[row["check_name"]], _severity(kinds[row["check_name"]])], row["new_findings"])
        for row in rows
    ]
    documentation = "Serious findings that the previous release does not have."
    yield gauge("integrity_new_findings", documentation, samples, ["check", "kind", "severity"])


def incident_families(events: Sequence[IncidentEvent]) -> Iterator[GaugeMetricFamily]:
    """Yield the number of open incidents of each kind."""
    scopes = dict.fromkeys(event.scope for event in events)
    incidents = {(event.kind, event.subject) for scope in scopes for event in list_open_incidents(events, scope)}
    counts = Counter(kind for kind, _ in incidents)
    kinds = dict.fromkeys([*IncidentKind, *counts])
    samples = [([kind, _severity(kind)], counts[kind]) for kind in kinds]
    yield gauge("incidents_open", "Open incidents by kind.", samples, ["kind", "severity"])


def size_families(summaries: Sequence[SizeSummary]) -> Iterator[GaugeMetricFamily]:
    """Yield sizes, growth and forecasts of Synapse's database and of the lake."""
    disks = {"database": "source", "lake": "lake"}
    rows = [(disks[summary.latest.kind], summary) for summary in summaries if summary.latest.kind in disks]
    sizes = [([disk], summary.latest.bytes) for disk, summary in rows]
    yield gauge("disk_used_bytes", "Size of Synapse's database and of the warehouse.", sizes, ["disk"])
    free = [([disk], summary.latest.free_bytes) for disk, summary in rows]
    yield gauge("disk_free_bytes", "Bytes by which the database or the warehouse can grow.", free, ["disk"])
    growth = [([disk], summary.growth.bytes_per_day / _DAY_SECONDS) for disk, summary in rows if summary.growth]
    documentation = "Median growth in the last five weeks, or in the last week if it became faster."
    yield gauge("disk_growth_bytes_per_second", documentation, growth, ["disk"])
    full = [
        ([disk], summary.forecast.days * _DAY_SECONDS)
        for disk, summary in rows
        if summary.forecast and summary.forecast.days is not None
    ]
    yield gauge("disk_full_seconds", "Time until the disk is full at the present growth.", full, ["disk"])
    slots = [summary.latest for summary in summaries if summary.latest.kind == "replication_slot"]
    held = [([slot.name], slot.bytes) for slot in slots[:MAX_RELATIONS]]
    yield gauge("replication_slot_held_bytes", "WAL that a replication slot holds.", held, ["slot"])
    yield from _relation_families([summary for summary in summaries if summary.latest.schema_name is not None])
    if summaries:
        measured = [((), summaries[0].latest.measured_at)]
        yield gauge("sizes_timestamp_seconds", "Time of the newest measurement of sizes.", measured)


def _relation_families(summaries: Sequence[SizeSummary]) -> Iterator[GaugeMetricFamily]:
    largest, rest = summaries[:MAX_RELATIONS], summaries[MAX_RELATIONS:]
    labels = ["schema", "relation"]
    for name, documentation, column in (
        ("relation_size_bytes", "Size of a relation with TOAST and indexes.", "bytes"),
        ("relation_index_bytes", "Size of a relation's indexes.", "index_bytes"),
        ("relation_live_rows", "Estimated number of rows.", "live_rows"),
        ("relation_dead_rows", "Estimated number of dead rows.", "dead_rows"),
        ("relation_transaction_id_age", "Age of the oldest transaction ID, in transactions.", "transaction_id_age"),
    ):
        samples = [(_names(summary), getattr(summary.latest, column)) for summary in largest]
        yield gauge(name, documentation, samples, labels)
    overdue = [(_names(summary), float(find_overdue_vacuum(summary) is not None)) for summary in largest]
    yield gauge("relation_vacuum_overdue", "Whether autovacuum is overdue on the relation.", overdue, labels)
    others = [((), sum(summary.latest.bytes or 0 for summary in rest))] if rest else []
    yield gauge("other_relations_size_bytes", f"Size of all but the {MAX_RELATIONS} largest relations.", others)


def _names(summary: SizeSummary) -> list[str]:
    return [summary.latest.schema_name or "", summary.latest.name]


def _severity(kind: str) -> str:
    """Return the severity of an alert of the kind ``kind``."""
    return "warning" if kind in WARNING_KINDS else "error"
