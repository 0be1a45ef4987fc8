"""Stalled streams: a writer that writes without advancing is reported, and an idle writer is not."""

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
    """Return a sample of a stream with the writers one and two. Writer two is active."""
    return StreamSample({"one": position, "two": 900}, {("events", "one"): rows}, last_allocated_id, largest)


def release(number: int, hours: int, run: str = "") -> Release:
    """Return a release that was published ``hours`` before NOW."""
    moment = NOW - timedelta(hours=hours)
    return Release(number, run or f"run {number}", moment, moment, "", "", "", {}, {}, {}, 0, 0, moment, [], moment)


def test_a_writer_that_adds_rows_without_advancing_is_stalled() -> None:
    assert find_stalled_writers(sample(500, 10), sample(500, 12), sample(500, 19)) == {"one": (500, 9)}


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param((sample(500, 10), sample(500, 10), sample(500, 10)), id="idle"),
        pytest.param((sample(500, 10), sample(600, 12), sample(700, 19)), id="active"),
        pytest.param((sample(500, 10), sample(500, 10), sample(500, 19)), id="a sample between row and position"),
        pytest.param(
            (sample(500, 10), sample(500, 12), sample(500, 12)), id="killed between row and position, then idle"
        ),
        pytest.param((sample(500, 10), sample(500, 12), sample(700, 19)), id="moving again"),
        pytest.param((sample(500, 19), sample(500, 12), sample(500, 4)), id="purged"),
        pytest.param((sample(500, 10), sample(500, 2), sample(500, 9)), id="purged and idle"),
        pytest.param(
            (StreamSample({"one": 500}, {}, 9, 9), sample(500, 12), sample(500, 19)),
            id="a table that was not copied before",
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
    for rows_written, rows_of_others in steps:
        rows += rows_written
        position += (rows_written + rows_of_others) if rows_written else 0
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
    compared = choose_compared_releases(releases, NOW, 24)
    assert compared
    assert [release_.number for release_ in compared] == [2, 4]
    assert choose_compared_releases(releases, NOW, 91) is None
    assert choose_compared_releases(releases, NOW, 0) is None
    assert choose_compared_releases([], NOW, 24) is None
    assert choose_compared_releases([release(1, 30)], NOW, 24) is None, "no release is between it and now"
    compacted = [release(1, 90, "a"), release(2, 30, "b"), release(3, 28, "b")]
    compared = choose_compared_releases(compacted, NOW, 24)
    assert compared
    assert [release_.run_id for release_ in compared] == ["a", "b"]


def run(
    last_allocated_id: int, rows: int, lsn: str = "0/1", *, standby: bool = False, state: str | None = None
) -> tuple[dict[str, Any], ...]:
    """Return the rows of a run in audit.snapshots, audit.stream_positions and audit.stream_facts."""
    source: dict[str, Any] = {"wal_lsn": lsn, "system_identifier": 7}
    state_columns = {"state_in_recovery": state is not None, "state_snapshot": state and source | {"wal_lsn": state}}
    snapshot = {"taken_at": NOW, "in_recovery": standby} | source | state_columns
    sequence = {"sequence_last_value": last_allocated_id, "sequence_is_called": True, "largest_id": 900}
    position = {"stream": "events", "writers": [("one", 500), ("two", 900)]} | sequence
    return snapshot, position, {"stream": "events", "table_name": "events", "rows_by_writer": [("one", rows)]}


def evaluate(*runs: tuple[Mapping[str, Any], ...]) -> dict[str, tuple[bool, str]]:
    """Return success and observation by subject, for runs with one row in each table."""
    metrics = progress_expectations.collect_metrics(*([[rows[table]] for rows in runs] for table in range(3)))
    suite = {
        expectation.column: expectation
        for expectation in progress_expectations.build_suite(catalogue.load_catalogue(), 24)
    }
    subjects = (progress_expectations.SOURCE_SUBJECT, "stream events")
    return {subject: suite[subject]._evaluate(metrics.get(subject, {})) for subject in subjects}


def test_stalled_streams_and_standbys_fail_with_their_numbers() -> None:
    assert {success for success, _ in evaluate().values()} == {True}, "no release is old enough"
    healthy = evaluate(run(900, 10), run(900, 10, "0/2"), run(900, 10, "0/3"))
    assert {success for success, _ in healthy.values()} == {True}
    stalled = evaluate(*(run(900 + 100 * number, 10 + number, standby=True) for number in range(3)))
    assert {success for success, _ in stalled.values()} == {False}
    assert "2026-11-20 12:00 UTC" in stalled["the source"][1]
    _, observed = stalled["stream events"]
    assert all(data in observed for data in ("2026-11-20 12:00 UTC", "one wrote 2 rows", "at 500", "200 IDs"))
    replaying = evaluate(*(run(900, 10, f"0/{number}", standby=True) for number in range(3)))
    assert replaying["the source"][0]


def test_a_stalled_standby_of_state_fails() -> None:
    stalled = evaluate(*(run(900, 10, f"0/{number}", standby=True, state="0/1") for number in range(3)))
    success, observed = stalled["the source"]
    assert not success
    assert observed.startswith("state replayed no WAL")
    replaying = evaluate(*(run(900, 10, state=f"0/{number}") for number in range(3)))
    assert replaying["the source"][0]


def test_streams_with_positions_are_expected_to_advance() -> None:
    declared = catalogue.load_catalogue()
    expected = {f"stream {stream.name}" for stream in declared.streams if stream.stream_positions} | {
        progress_expectations.SOURCE_SUBJECT
    }
    assert {expectation.column for expectation in progress_expectations.build_suite(declared, 24)} == expected
    assert progress_expectations.build_suite(declared, 0) == []


def test_samples_come_from_two_releases_and_the_run(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    tables.ensure_audit_tables(catalog)
    now = datetime.now(UTC)
    for number, hours in enumerate((50, 30, 3, 0)):
        audit_run = Run(f"run {number}", now - timedelta(hours=hours), now + timedelta(hours=1))
        snapshot, position, fact = run(900, 10 + number, standby=True)
        store.append_audit_rows(catalog, "audit.snapshots", [snapshot | {"began_at": NOW}], audit_run)
        store.append_audit_rows(catalog, "audit.stream_positions", [position | {"measured_at": NOW}], audit_run)
        store.append_audit_rows(catalog, "audit.stream_facts", [fact | {"measured_at": NOW}], audit_run)
        if hours:
            columns = {"release": number, "tables": [], "positions": [], "views": []}
            moments = {"published_at": audit_run.start, "accepted_at": audit_run.start}
            store.append_audit_rows(catalog, "audit.releases", [columns | moments], audit_run)
    samples = validate.collect_samples(catalog, audit_run, 24)
    assert samples.keys() == {progress_expectations.SOURCE_SUBJECT, "stream events"}
    row_counts = [samples["stream events"][name].rows["events", "one"] for name in ("first", "middle", "last")]
    assert row_counts == [11, 12, 13], "the youngest release that is old enough, the latest, and this run"
    assert validate.collect_samples(catalog, audit_run, 60) == {progress_expectations.SOURCE_SUBJECT: {}}
    assert validate.collect_samples(catalog, audit_run, 0) == {progress_expectations.SOURCE_SUBJECT: {}}
