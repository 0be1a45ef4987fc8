"""Faster growth, overdue vacuums and disks that are soon full raise alerts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.alerts.size_findings import check_sizes
from synapse_lakehouse.sizes.autovacuum import find_overdue_vacuum
from synapse_lakehouse.sizes.summary import SizeRow, summarize

NOW = datetime(2026, 11, 28, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = 24 * HOUR
GIB = 2**30
EVENTS = SizeRow(
    kind="table", schema_name="public", name="events", bytes=GIB, index_bytes=0, free_bytes=None, live_rows=1000,
    dead_rows=0, last_vacuum=None, last_autovacuum=None, vacuum_threshold=250, autovacuum_enabled=True,
    transaction_id_age=100, freeze_max_age=200, is_active=None, measured_at=NOW,
)  # fmt: skip
DATABASE = replace(EVENTS, kind="database", schema_name=None, name="synapse", bytes=100 * GIB, dead_rows=None)


def history(row: SizeRow, sizes: Sequence[int | None]) -> list[SizeRow]:
    """Return daily rows with ``sizes``, up to now."""
    return [
        replace(row, bytes=size, measured_at=NOW - (len(sizes) - 1 - index) * DAY) for index, size in enumerate(sizes)
    ]


def kinds(rows: list[SizeRow]) -> set[tuple[IncidentKind, str]]:
    return {(finding.kind, finding.subject) for finding in check_sizes(summarize(rows))}


def test_a_table_that_grows_faster_raises_an_alert() -> None:
    database = history(DATABASE, [100 * GIB] * 36)
    steady = [GIB + day for day in range(36)]
    faster = [*steady[:29], *(steady[28] + day * GIB for day in range(1, 8))]
    assert kinds(database + history(EVENTS, steady)) == set()
    assert kinds(database + history(EVENTS, faster)) == {(IncidentKind.GROWTH_CHANGED, "table public.events")}
    # The same change is small for a large database.
    large = history(DATABASE, [10_000 * GIB] * 36)
    assert kinds(large + history(EVENTS, faster)) == set()


def test_a_slot_that_begins_to_retain_wal_raises_an_alert() -> None:
    slot = replace(EVENTS, kind="replication_slot", schema_name=None, name="standby", dead_rows=None)
    sizes = [*([16] * 29), *(day * GIB for day in range(1, 8))]
    rows = history(DATABASE, [100 * GIB] * 36) + history(slot, sizes)
    assert kinds(rows) == {(IncidentKind.GROWTH_CHANGED, "replication slot standby")}


@pytest.mark.parametrize(("free", "has_alert"), [(10 * GIB, True), (20 * GIB, False), (None, False), (-5, True)])
def test_a_disk_that_is_soon_full_raises_an_alert(free: int | None, has_alert: bool) -> None:
    rows = history(replace(DATABASE, free_bytes=free), [(100 + day) * GIB for day in range(10)])
    assert kinds(rows) == ({(IncidentKind.DISK_FILLING, "database synapse")} if has_alert else set())
    shrinking = history(replace(DATABASE, free_bytes=free), [(100 - day) * GIB for day in range(10)])
    assert kinds(shrinking) == set()


@pytest.mark.parametrize(
    ("before", "now", "vacuumed_at", "age", "is_overdue"),
    [
        (251, 251, None, HOUR, True),
        (250, 251, None, HOUR, False),
        (251, 250, None, HOUR, False),
        (251, 251, None, HOUR / 2, False),
        (251, 251, NOW - HOUR / 2, HOUR, False),
        (251, 251, NOW - 2 * HOUR, HOUR, True),
        (10_001, 10_001, NOW - HOUR / 2, HOUR, True),
        (10_001, 10_000, NOW - HOUR / 2, HOUR, False),
        (None, None, None, HOUR, False),
    ],
)
def test_dead_rows_above_the_threshold_for_an_hour_are_overdue(
    before: int | None, now: int | None, vacuumed_at: datetime | None, age: timedelta, is_overdue: bool
) -> None:
    rows = [
        replace(EVENTS, dead_rows=before, measured_at=NOW - age),
        replace(EVENTS, dead_rows=now, last_vacuum=vacuumed_at),
    ]
    (summary,) = summarize(rows)
    assert (find_overdue_vacuum(summary) is not None) is is_overdue
    assert kinds(rows) == ({(IncidentKind.AUTOVACUUM_BEHIND, "table public.events")} if is_overdue else set())


def test_old_transaction_ids_are_overdue() -> None:
    rows = [replace(EVENTS, transaction_id_age=201, measured_at=NOW - HOUR), replace(EVENTS, transaction_id_age=300)]
    (summary,) = summarize(rows)
    overdue = find_overdue_vacuum(summary)
    assert overdue
    assert (overdue.for_dead_rows, overdue.for_transaction_ids) == (False, True)
    # The age of a replication slot is the age of the rows that it retains for a standby.
    assert kinds([replace(row, kind="replication_slot", schema_name=None) for row in rows]) == set()


def test_a_locked_relation_keeps_its_earlier_history() -> None:
    sizes = [GIB + day * 1000 for day in range(9)]
    (summary,) = summarize(history(EVENTS, [*sizes, None]))
    assert summary.latest.bytes is None
    assert summary.growth
    assert summary.growth.bytes_per_day == pytest.approx(1000)


def test_only_relations_of_the_newest_measurement_are_shown() -> None:
    dropped = replace(EVENTS, name="dropped", measured_at=NOW - DAY)
    assert [summary.latest.name for summary in summarize([dropped, EVENTS])] == ["events"]
    assert summarize([]) == []


def test_relations_of_one_name_in_two_schemas_are_separate() -> None:
    rows = history(EVENTS, [1, 2]) + history(replace(EVENTS, schema_name="other"), [3, 4])
    assert [(summary.latest.schema_name, len(summary.history)) for summary in summarize(rows)] == [
        ("other", 2), ("public", 2),
    ]  # fmt: skip
