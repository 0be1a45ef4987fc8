"""One scan tells how many rows a table has, how many of them changed, and where these are."""

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source import snapshot
from synapse_lakehouse.source.connection import connect
from synapse_lakehouse.source.projection import select
from synapse_lakehouse.source.snapshot import Changes, count_since

EVENTS = catalogue.load().table("events")


@pytest.fixture
def changed(source_copy: str) -> tuple[int, int, set[str]]:
    """The transaction since which some events changed, how many there are, and the ids of those that changed."""
    with psycopg.connect(source_copy, autocommit=True) as source:
        source.execute("set session_replication_role = replica")
        (since,) = source.execute("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone() or (0,)
        ids = source.execute("update events set depth = depth + 1 where random() < 0.1 returning event_id").fetchall()
        source.execute("delete from events where event_id not in (select event_id from event_json)")
        (rows,) = source.execute("select count(*) from events").fetchone() or (0,)
        return since, rows, {one for (one,) in ids}


def test_changed_rows_are_found_and_read_where_they_are(
    settings: Settings, source_copy: str, changed: tuple[int, int, set[str]]
) -> None:
    since, rows, ids = changed
    with connect(settings.model_copy(update={"synapse_dsn": source_copy})) as connection:
        found = count_since(connection, EVENTS, since)
        assert (found.rows, found.changed) == (rows, len(ids))
        at = [column.name for column in EVENTS.columns].index("event_id")
        for statement in (select(EVENTS, since=since), select(EVENTS, since=since, places=found.places)):
            read = [row[at] for row in connection.execute(statement)]
            assert len(read) == len(ids)
            assert set(read) == ids
        assert count_since(connection, EVENTS, since) == found
        (now,) = connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone() or (0,)
        assert count_since(connection, EVENTS, now) == Changes(rows, 0, "{}")


def test_many_changed_rows_are_counted_only(
    settings: Settings, source_copy: str, changed: tuple[int, int, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    since, rows, ids = changed
    monkeypatch.setattr(snapshot, "MOST_PLACES", len(ids) - 1)
    with connect(settings.model_copy(update={"synapse_dsn": source_copy})) as connection:
        assert count_since(connection, EVENTS, since) == Changes(rows, len(ids), None)
