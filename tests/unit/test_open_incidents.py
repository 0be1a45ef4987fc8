"""The page lists each open incident once, since its begin."""

from datetime import UTC, datetime, timedelta

import duckdb

from synapse_lakehouse.report.overall_status import INCIDENTS

BEGIN = datetime(2026, 11, 18, tzinfo=UTC)


def test_an_incident_is_open_since_its_begin() -> None:
    connection = duckdb.connect()
    connection.execute("create schema audit")
    connection.execute(
        'create table audit.incidents (scope text, kind text, subject text, description text, consequence text, "at"'
        " timestamptz, begins boolean, sink text)"
    )
    # A loss that ended and began again, then grew; one that ended; a delivery.
    events = [
        ("grown", 0, True, None),
        ("grown", 1, False, None),
        ("grown", 2, True, None),
        ("grown", 3, True, None),
        ("grown", 4, True, "matrix"),
        ("ended", 0, True, None),
        ("ended", 1, True, None),
        ("ended", 1, False, None),
    ]
    for subject, days, begins, sink in events:
        connection.execute(
            "insert into audit.incidents values ('gold', 'data-loss', ?, ?, '', ?, ?, ?)",
            [subject, f"day {days}", BEGIN + timedelta(days=days), begins, sink],
        )
    columns = "kind, subject, date_diff('day', timestamptz '2026-11-18 00:00:00+00', since), description"
    rows = connection.execute(f"select {columns} from ({INCIDENTS.sql})").fetchall()
    assert rows == [("data-loss", "grown", 2, "day 3")]
