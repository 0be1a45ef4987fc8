"""A run reports lost events whose JSON is stored, and publishes. A later run ends alerts of acknowledged rooms."""

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
with candidates as (
  select event_id, room_id, stream_ordering,
    (select max(parent.stream_ordering) from event_edges edges
      join events parent on parent.event_id = edges.prev_event_id where edges.event_id = events.event_id) as parent,
    (select min(child.stream_ordering) from event_edges edges join events child on child.event_id = edges.event_id
      where edges.prev_event_id = events.event_id
      having bool_and(child.type = 'm.room.message' and child.sender like '%:synapse.example')) as child
  from events where type = 'm.room.message' and not outlier and sender like '%:synapse.example'
    and event_id not in (select event_id from receipts_linearized)
    and event_id not in (select event_id from sticky_events)
    and event_id not in (select latest_event_id from threads)
), numbered as (
  select event_id, row_number() over (partition by room_id order by stream_ordering) as n from candidates
  where parent > 0 and child - parent - 1 > (
    select count(*) from events between_them
    where between_them.stream_ordering > parent and between_them.stream_ordering < child)
)
delete from events where event_id in (select event_id from numbered order by n, event_id limit 5)
returning event_id, room_id, stream_ordering
"""
"""Five messages. Nothing else names their stream IDs, and between their parents and children other IDs are missing too,
so that the room's graph does not determine them."""
FINDINGS = "select subject, room_id, severity, expected from gold.state_integrity where check_name = 'event_lost'"
CHECK = "check event_lost"


@pytest.mark.heavy
def test_lost_events_alert_until_their_rooms_are_acknowledged(
    new_lake: Callable[..., Settings], source_copy: str
) -> None:
    with psycopg.connect(source_copy) as source:
        source.execute("set session_replication_role = replica")
        lost = source.execute(DELETED).fetchall()
    ids = {event_id: stream_id for event_id, _, stream_id in lost}
    rooms = {event_id: room_id for event_id, room_id, _ in lost}
    assert len(ids) == 5
    assert len({*rooms.values()}) >= 3
    with receivers() as alerts:
        settings = new_lake(synapse_dsn=source_copy, lakehouse_alert_urls=" ".join(alerts.urls))
        assert _run(settings) == 1
        findings = _findings(settings)
        assert {subject: room for subject, (room, *_) in findings.items()} == rooms
        assert {severity for _, severity, _ in findings.values()} == {"fail"}
        for event_id, (_, _, expected) in findings.items():
            assert _is_in_range(ids[event_id], expected)
        assert _has_passed(settings) is False
        for titles in _titles(alerts):
            assert sum(CHECK in title for title in titles) == 1

        changed_settings = settings.model_copy(update={"lakehouse_acknowledged_rooms": " ".join({*rooms.values()})})
        assert _run(changed_settings) == 2
        assert {severity for _, severity, _ in _findings(settings).values()} == {"info"}
        assert _has_passed(settings) is True
        for titles in _titles(alerts):
            assert [title.endswith("ended") for title in titles if CHECK in title] == [False, True]


def _run(settings: Settings) -> int:
    """Run once, and return the number of the published release."""
    result = lakehouse(settings, "run")
    assert result.returncode == 0, result.stdout + result.stderr
    releases = store.read_releases(open_catalog(settings))
    return max(release.number for release in releases)


def _is_in_range(stream_id: int, expected: str) -> bool:
    """Return whether an ID is within the bounds that a finding names; require at least one bound."""
    low, high = (re.search(rf"{word} (\d+)", expected) for word in ("from", "to"))
    assert low or high, expected
    return (not low or int(low[1]) <= stream_id) and (not high or stream_id <= int(high[1]))


def _findings(settings: Settings) -> dict[str, tuple[str, str, str]]:
    """Return room, severity and expected value by subject."""
    with duckdb_reader.open_duckdb(settings) as connection:
        duckdb_reader.create_views(
            connection, settings, duckdb_reader.get_release(connection, settings), ["gold.state_integrity"]
        )
        return {subject: tuple(values) for subject, *values in connection.execute(FINDINGS).fetchall()}


def _has_passed(settings: Settings) -> bool:
    with duckdb_reader.open_duckdb(settings) as connection:
        duckdb_reader.create_views(
            connection, settings, duckdb_reader.get_release(connection, settings), ["audit.checks"]
        )
        results = connection.execute("select success from audit.checks where subject = ? order by checked_at", [CHECK])
        return bool(results.fetchall()[-1][0])


def _titles(alerts: Receivers) -> list[list[str]]:
    """Return the titles of the received alerts, by kind of receiver."""
    return [
        [document["title"] for document in alerts.posted],
        [str(mail["Subject"]) for mail in alerts.mails],
        [document["body"].partition("\n")[0].strip() for document in alerts.matrix],
    ]
