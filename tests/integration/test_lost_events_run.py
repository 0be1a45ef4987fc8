"""Whole runs report lost events whose JSON is stored, publish, and stop reporting accepted rooms."""

import re
from collections.abc import Callable

import psycopg
import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import lakehouse
from tests.support.alert_receivers import Receivers, receivers

DELETED = """
with numbered as (
  select event_id, row_number() over (partition by room_id order by stream_ordering) as n,
         dense_rank() over (order by room_id) as room
  from events where type = 'm.room.message' and not outlier and stream_ordering > 0
    and room_id in (select room_id from events where type = 'm.room.message' group by room_id having count(*) > 20)
    and event_id not in (select event_id from event_forward_extremities)
    and event_id not in (select event_id from receipts_linearized)
    and event_id not in (select event_id from sticky_events)
    and event_id not in (select latest_event_id from threads)
)
delete from events where event_id in (
  select event_id from numbered where (room, n) in ((1, 3), (1, 9), (2, 5), (2, 6), (3, 8)))
returning event_id, room_id, stream_ordering
"""
"""Five messages of three rooms. Nothing else names their stream IDs."""
FINDINGS = "select subject, room_id, severity, expected from gold.state_integrity where check_name = 'event_lost'"
CHECK = "check event_lost"


@pytest.mark.heavy
def test_lost_events_are_reported_until_the_room_is_accepted(
    new_lake: Callable[..., Settings], source_copy: str
) -> None:
    with psycopg.connect(source_copy) as source:
        source.execute("set session_replication_role = replica")
        lost = source.execute(DELETED).fetchall()
    ids = {event_id: stream_id for event_id, _, stream_id in lost}
    rooms = {event_id: room_id for event_id, room_id, _ in lost}
    assert (len(ids), len({*rooms.values()})) == (5, 3)
    with receivers() as alerts:
        settings = new_lake(synapse_dsn=source_copy, lakehouse_alert_urls=" ".join(alerts.urls))
        assert _run(settings) == 1
        found = _findings(settings)
        assert {subject: room for subject, (room, *_) in found.items()} == rooms
        assert {severity for _, severity, _ in found.values()} == {"fail"}
        for event_id, (_, _, expected) in found.items():
            low, high = map(int, re.findall(r"\d+", expected))
            assert low <= ids[event_id] <= high
        assert _is_met(settings) is False
        for titles in _titles(alerts):
            assert sum(CHECK in title for title in titles) == 1

        acknowledged = settings.model_copy(update={"lakehouse_acknowledged_rooms": " ".join({*rooms.values()})})
        assert _run(acknowledged) == 2
        assert {severity for _, severity, _ in _findings(settings).values()} == {"info"}
        assert _is_met(settings) is True
        for titles in _titles(alerts):
            assert [title.endswith("over") for title in titles if CHECK in title] == [False, True]


def _run(settings: Settings) -> int:
    """The release that a whole run published."""
    done = lakehouse(settings, "run")
    assert done.returncode == 0, done.stdout + done.stderr
    releases = store.read_releases(open_catalog(settings))
    return max(release.number for release in releases)


def _findings(settings: Settings) -> dict[str, tuple[str, str, str]]:
    """Subject → room, severity, expected."""
    with duckdb_reader.open_duckdb(settings) as connection:
        duckdb_reader.create_views(
            connection, settings, duckdb_reader.get_release(connection, settings), ["gold.state_integrity"]
        )
        return {subject: tuple(others) for subject, *others in connection.execute(FINDINGS).fetchall()}


def _is_met(settings: Settings) -> bool:
    with duckdb_reader.open_duckdb(settings) as connection:
        duckdb_reader.create_views(
            connection, settings, duckdb_reader.get_release(connection, settings), ["audit.checks"]
        )
        met = connection.execute("select success from audit.checks where subject = ? order by checked_at", [CHECK])
        return bool(met.fetchall()[-1][0])


def _titles(alerts: Receivers) -> list[list[str]]:
    """By kind of receiver the first lines of what it received."""
    return [
        [document["title"] for document in alerts.posted],
        [str(mail["Subject"]) for mail in alerts.mails],
        [document["body"].partition("\n")[0].strip() for document in alerts.matrix],
    ]
