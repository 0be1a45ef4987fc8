"""The stream watch opens an incident for each report that a user sent since the last sample."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.alerts.live_check import check_reports
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.postgres import recent_reports
from tests.integration.stream_watch.conftest import Samples

NOW = "(extract(epoch from now()) * 1000)::bigint"
Source = psycopg.Connection[Any]


def list_reports() -> list[tuple[str, bool, str]]:
    """Return subject, begin flag and description of each incident event of a report."""
    with closing(open_catalog(Settings())) as catalog:
        events = incident_log.read_incident_log(catalog).events
    return [
        (event.subject, event.begins, event.description) for event in events if event.kind == IncidentKind.NEW_REPORT
    ]


@pytest.fixture
def synapse(source_copy: str) -> Iterator[Source]:
    """Yield a connection to the source, which contains only old reports."""
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        for table in ("event_reports", "room_reports", "user_reports"):
            synapse.execute(f"update {table} set received_ts = 0".encode())
        yield synapse


def test_each_new_report_is_one_incident_without_ids(synapse: Source, take_samples: Callable[[], Samples]) -> None:
    take_samples()
    assert list_reports() == []
    synapse.execute(f"insert into event_reports values (901, {NOW}, '!r', '$e', '@a:b', 'SECRET', '{{}}')")
    synapse.execute(f"insert into user_reports values (902, {NOW}, '@bad:c', '@a:b', 'SECRET')")
    take_samples(), take_samples()
    description = "a user sent a report"
    assert sorted(list_reports()) == [("event report 901", True, description), ("user report 902", True, description)]
    synapse.execute("delete from user_reports where id = 902")
    synapse.execute(f"insert into room_reports values (903, {NOW}, '!r', '@a:b', 'SECRET')")
    take_samples()
    assert sorted(list_reports()[2:]) == [
        ("room report 903", True, description),
        ("user report 902", False, description),
    ]
    assert [finding.details for finding in check_reports(Settings(), None)] == [
        "@a:b reported the event $e", "@a:b reported the room !r",
    ]  # fmt: skip


def test_reports_during_a_stop_of_the_watch_are_new(synapse: Source, take_samples: Callable[[], Samples]) -> None:
    take_samples()
    with closing(open_catalog(Settings())) as catalog:
        samples = catalog.load_table("audit.stream_watch")
        rows = samples.scan().to_arrow()
        past = pa.array([datetime.now(UTC) - timedelta(days=9)] * rows.num_rows, rows["watched_at"].type)
        samples.overwrite(rows.set_column(rows.schema.get_field_index("watched_at"), "watched_at", past))
    received_ts = f"{NOW} - 86400000 * "
    for id, days in ((901, 20), (902, 8), (903, 1)):
        synapse.execute(f"insert into user_reports values ({id}, {received_ts} {days}, '@bad:c', '@a:b', '')".encode())
    take_samples(), take_samples()
    assert [(subject, begins) for subject, begins, _ in list_reports()] == [
        ("user report 902", True), ("user report 903", True), ("user report 902", False),
    ]  # fmt: skip


def test_more_reports_than_are_read_are_counted(
    synapse: Source, take_samples: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_reports, "MAX_REPORTS", 3)
    rows = f"select id, {NOW}, '@bad:c', '@a:b', '' from generate_series(901, 2134) id"
    synapse.execute(f"insert into user_reports {rows}".encode())
    take_samples(), take_samples()
    reports = {subject: description for subject, begins, description in list_reports() if begins}
    assert set(reports) == {"user reports", *(f"user report {id}" for id in (2132, 2133, 2134))}
    assert "1,234" in reports["user reports"]
