"""Daily statistics count each event once, on its UTC day, in any time zone of the schedule and of the machine."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.report.read_panels import PanelReader
from synapse_lakehouse.report.sections import SECTIONS
from tests.support.report_lake import TABLES, open_report_lake, publish

ZONE = "Europe/Berlin"
PANELS = {panel.id: panel for section in SECTIONS for panel in section.panels}


@pytest.fixture
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the machine's time zone to that of the schedule."""
    monkeypatch.setenv("TZ", ZONE)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("local_time")
@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25)])
def test_each_event_is_counted_once(day: date, hours: int, new_lake: Callable[..., Settings]) -> None:
    settings = new_lake(lakehouse_timezone=ZONE)
    start, end = settings.schedule.find_interval(datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(ZONE)))
    assert end - start == timedelta(hours=hours)
    times = [start - timedelta(hours=3) + timedelta(minutes=30) * n for n in range(2 * (hours + 6))]
    rows = [{"event_id": f"${n}", "room_id": "!r", "type": "t", "received_at": at} for n, at in enumerate(times)]
    with open_report_lake(settings) as catalog:
        catalog.load_table("gold.events").append(pa.Table.from_pylist(rows, schema=TABLES["gold.events"]))
        publish(catalog, 1, [])
    expected = Counter(at.astimezone(UTC).date() for at in times)
    with duckdb_reader.open_duckdb(settings) as connection:
        reader = PanelReader(connection, settings, duckdb_reader.get_release(connection, settings))
        for name in ("events-by-type", "events-by-room"):
            assert {row["day"]: row["events"] for row in reader.read(PANELS[name]).rows} == expected
