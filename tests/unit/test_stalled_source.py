"""Stalled streams: writers that write without advancing are found, idle ones are not."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog

from expectations import progress_expectations, validate
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.streams.checks import stalled_writers
from synapse_lakehouse.streams.checks.stalled_writers import (
    StreamSample,
    choose_compared_releases,
    count_ids_without_rows,
    find_stalled_writers,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def sample(position: int, rows: int, last_allocated_id: int = 900, largest: int = 900) -> StreamSample:
    """A stream with two writers; the other one is at work."""
    return StreamSample({"one": position, "two": 900}, {("events", "one"): rows}, last_allocated_id, largest)


def release(number: int, hours: int, run: str = "") -> Release:
    """A release from so many hours ago."""
    at = NOW - timedelta(hours=hours)
    return Release(number, run or f"run {number}", at, at, "", "", "", {}, {}, {}, 0, 0, at, [], at)


def test_a_writer_that_adds_rows_without_advancing_is_stalled() -> None:
    assert find_stalled_writers(sample(500, 10), sample(500, 12), sample(500, 19)) == {"one": (500, 9)}


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param((sample(500, 10), sample(500, 10), sample(500, 10)), id="idle"),
        pytest.param((sample(500, 10), sample(600, 12), sample(700, 19)), id="at work"),
        pytest.param((sample(500, 10), sample(500, 10), sample(500, 19)), id="a look between row and position"),
        pytest.param(
            (sample(500, 10), sample(500, 12), sample(500, 12)), id="killed between row and position, then idle"
        ),
        pytest.param((sample(500, 10), sample(500, 12), sample(700, 19)), id="moving again"),
        pytest.param((sample(500, 19), sample(500, 12), sample(500, 4)), id="purged"),
        pytest.param((sample(500, 10), sample(500, 2), sample(500, 9)), id="purged and idle"),
        pytest.param(
            (StreamSample({"one": 500}, {}, 9, 9), sample(500, 12), sample(500, 19)),
            id="a table that is copied only since",
        ),
        pytest.param(
            (StreamSample({}, {("events", "one"): 1}, 9, 9), sample(500, 2), sample(500, 3)), id="a new writer"
        ),
    ],
)
def test_an_idle_or_advancing_writer_is_not_stalled(runs: tuple[StreamSample, StreamSample, StreamSample]) -> None:
    assert find_stalled_writers(*runs) == {}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=3))
def test_a_writer_that_follows_its_rows_is_not_stalled(steps: list[tuple[int, int]]) -> None:
    position, rows, runs = 1, 0, []
    for written, others in steps:
        rows += written
        position += (written + others) if written else 0
        runs.append(sample(position, rows))
    assert find_stalled_writers(*runs) == {}


def test_many_ids_without_a_row_are_counted() -> None:
    first = sample(500, 10)
    middle, last = (
        replace(first, last_allocated_id=950),
        replace(first, last_allocated_id=900 + stalled_writers.MINIMUM_IDS),
    )
    assert count_ids_without_rows(first, middle, last) == stalled_writers.MINIMUM_IDS
    assert not count_ids_without_rows(
        first, middle, replace(last, last_allocated_id=900 + stalled_writers.MINIMUM_IDS - 1)
    )
    assert not count_ids_without_rows(first, replace(middle, largest=940), replace(last, largest=940))
    assert not count_ids_without_rows(first, middle, replace(last, largest=901))


def test_the_youngest_release_that_is_old_enough_is_compared() -> None:
    releases = [release(1, 90), release(2, 30), release(3, 20), release(4, 10)]
    actual = choose_compared_releases(releases, NOW, 24)
    assert actual
    assert [item.number for item in actual] == [2, 4]
    assert choose_compared_releases(releases, NOW, 91) is None
    assert choose_compared_releases(releases, NOW, 0) is None
    assert choose_compared_releases([], NOW, 24) is None
    assert choose_compared_releases([release(1, 30)], NOW, 24) is None, "there is nothing between it and now"
    compacted = [release(1, 90, "a"), release(2, 30, "b"), release(3, 28, "b")]
    actual = choose_compared_releases(compacted, NOW, 24)
    assert actual
    assert [item.run_id for item in actual] == ["a", "b"]


def run(
    last_allocated_id: int, rows: int, lsn: str = "0/1", *, standby: bool = False, state: str | None = None
) -> tuple[dict[str, Any], ...]:
    """Rows of a run in the audit tables: of the source, of a stream's positions and of its facts."""
    source: dict[str, Any] = {"wal_lsn": lsn, "system_identifier": 7}
    of_state = {"state_in_recovery": state is not None, "state_snapshot": state and source | {"wal_lsn": state}}
    snapshot = {"taken_at": NOW, "in_recovery": standby} | source | of_state
    sequence = {"sequence_last_value": last_allocated_id, "sequence_is_called": True, "largest_id": 900}
    position = {"stream": "events", "writers": [("one", 500), ("two", 900)]} | sequence
    return snapshot, position, {"stream": "events", "table_name": "events", "rows_by_writer": [("one", rows)]}


def evaluated(*runs: tuple[Mapping[str, Any], ...]) -> dict[str, tuple[bool, str]]:
    """Success and observation by subject, of runs with one row in each table."""
    metrics = progress_expectations.collect_metrics(*([[rows[table]] for rows in runs] for table in range(3)))
    suite = {
        expectation.column: expectation
        for expectation in progress_expectations.build_suite(catalogue.load_catalogue(), 24)
    }
    subjects = (progress_expectations.SOURCE_SUBJECT, "stream events")
    return {subject: suite[subject]._evaluate(metrics.get(subject, {})) for subject in subjects}


def test_stalled_streams_and_standbys_fail_with_their_numbers() -> None:
    assert {success for success, _ in evaluated().values()} == {True}, "no release is old enough"
    healthy = evaluated(run(900, 10), run(900, 10, "0/2"), run(900, 10, "0/3"))
    assert {success for success, _ in healthy.values()} == {True}
    stalled = evaluated(*(run(900 + 100 * number, 10 + number, standby=True) for number in range(3)))
    assert {success for success, _ in stalled.values()} == {False}
    assert "2026-11-20 12:00 UTC" in stalled["the source"][1]
    _, observed = stalled["stream events"]
    assert all(data in observed for data in ("2026-11-20 12:00 UTC", "one wrote 2 rows", "at 500", "200 IDs"))
    replaying = evaluated(*(run(900, 10, f"0/{number}", standby=True) for number in range(3)))
    assert replaying["the source"][0]


def test_a_stalled_standby_of_state_fails() -> None:
    stalled = evaluated(*(run(900, 10, f"0/{number}", standby=True, state="0/1") for number in range(3)))
    success, observed = stalled["the source"]
    assert not success
    assert observed.startswith("state replayed no WAL")
    replaying = evaluated(*(run(900, 10, state=f"0/{number}") for number in range(3)))
    assert replaying["the source"][0]


def test_streams_with_positions_are_expected_to_advance() -> None:
    declared = catalogue.load_catalogue()
    expected = {f"stream {item.name}" for item in declared.streams if item.stream_positions} | {
        progress_expectations.SOURCE_SUBJECT
    }
    assert {item.column for item in progress_expectations.build_suite(declared, 24)} == expected
    assert progress_expectations.build_suite(declared, 0) == []


def test_samples_come_from_two_releases_and_the_run(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    tables.ensure_audit_tables(catalog)
    now = datetime.now(UTC)
    for number, hours in enumerate((50, 30, 3, 0)):
        of = Run(f"run {number}", now - timedelta(hours=hours), now + timedelta(hours=1))
        snapshot, position, fact = run(900, 10 + number, standby=True)
        store.append_audit_rows(catalog, "audit.snapshots", [snapshot | {"began_at": NOW}], of)
        store.append_audit_rows(catalog, "audit.stream_positions", [position | {"measured_at": NOW}], of)
        store.append_audit_rows(catalog, "audit.stream_facts", [fact | {"measured_at": NOW}], of)
        if hours:
            published = {"release": number, "tables": [], "positions": [], "views": []}
            moments = {"published_at": of.start, "accepted_at": of.start}
            store.append_audit_rows(catalog, "audit.releases", [published | moments], of)
    actual = validate.collect_samples(catalog, of, 24)
    assert actual.keys() == {progress_expectations.SOURCE_SUBJECT, "stream events"}
    seen_rows = [actual["stream events"][name].rows["events", "one"] for name in ("first", "middle", "last")]
    assert seen_rows == [11, 12, 13], "the youngest release that is old enough, the latest, and this run"
    assert validate.collect_samples(catalog, of, 60) == {progress_expectations.SOURCE_SUBJECT: {}}
    assert validate.collect_samples(catalog, of, 0) == {progress_expectations.SOURCE_SUBJECT: {}}
