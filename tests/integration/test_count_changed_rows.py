"""One scan counts the rows and the changed rows, and returns the ctids of the changed rows."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest
from psycopg import sql

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.count_tables import CountRows, count_tables
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows, count_rows
from synapse_lakehouse.postgres.rows.select_sql import build_select
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot

EVENTS = catalogue.load_catalogue().table("events")


@pytest.fixture
def change(source_copy: str) -> tuple[int, int, set[str]]:
    """Change some events; return the transaction ID before it, the number of events, and the changed event IDs."""
    with psycopg.connect(source_copy, autocommit=True) as source:
        source.execute("set session_replication_role = replica")
        (since,) = source.execute("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone() or (0,)
        ids = source.execute("update events set depth = depth + 1 where random() < 0.1 returning event_id").fetchall()
        source.execute("delete from events where event_id not in (select event_id from event_json)")
        (rows,) = source.execute("select count(*) from events").fetchone() or (0,)
        return since, rows, {event_id for (event_id,) in ids}


def test_changed_rows_are_counted_and_read_by_ctid(
    settings: Settings, source_copy: str, change: tuple[int, int, set[str]]
) -> None:
    since, rows, ids = change
    with connect(settings.model_copy(update={"synapse_dsn": source_copy})) as connection:
        actual = count_changed_rows(connection, EVENTS, since)
        assert (actual.rows, actual.changed) == (rows, len(ids))
        index = [column.name for column in EVENTS.columns].index("event_id")
        for statement in (build_select(EVENTS, since=since), build_select(EVENTS, since=since, ctids=actual.ctids)):
            event_ids = [row[index] for row in connection.execute(statement)]
            assert len(event_ids) == len(ids)
            assert set(event_ids) == ids
        assert count_changed_rows(connection, EVENTS, since) == actual
        (now,) = connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone() or (0,)
        assert count_changed_rows(connection, EVENTS, now) == RowCounts(rows, 0, "{}")


@pytest.mark.parametrize("track_counts", ["on", "off"])
def test_invisible_rows_are_not_counted(
    settings: Settings, source_copy: str, change: tuple[int, int, set[str]], track_counts: str
) -> None:
    since, rows, ids = change
    with psycopg.connect(source_copy) as source:
        source.execute(
            sql.SQL("alter database {} set track_counts = {}").format(
                sql.Identifier(source.info.dbname), sql.Literal(track_counts)
            )
        )
        source.commit()
        source.execute("set session_replication_role = replica")
        source.execute("update events set depth = depth + 1 where random() < 0.5")
        source.execute("delete from events where random() < 0.5")
        with connect(settings.model_copy(update={"synapse_dsn": source_copy})) as connection:
            for _ in range(2):
                actual = count_changed_rows(connection, EVENTS, since)
                assert (actual.rows, actual.changed) == (rows, len(ids))
                assert count_rows(connection, EVENTS) == rows


def test_rows_of_a_table_that_inherits_are_counted(
    settings: Settings, source_copy: str, change: tuple[int, int, set[str]]
) -> None:
    since, rows, _ = change
    with psycopg.connect(source_copy, autocommit=True) as source:
        source.execute("create table more_events () inherits (events)")
        source.execute("insert into more_events select * from events limit 7")
    with connect(settings.model_copy(update={"synapse_dsn": source_copy})) as connection:
        assert count_changed_rows(connection, EVENTS, since).rows == count_rows(connection, EVENTS) == rows + 7


def test_many_changed_rows_are_counted_only(
    settings: Settings, source_copy: str, change: tuple[int, int, set[str]]
) -> None:
    since, rows, ids = change
    with connect(settings.model_copy(update={"synapse_dsn": source_copy})) as connection:
        for max_ctids in (0, 1, len(ids) - 2, len(ids) - 1):
            assert count_changed_rows(connection, EVENTS, since, max_ctids) == RowCounts(rows, len(ids), None)
        counts = count_changed_rows(connection, EVENTS, since, len(ids))
        assert counts.changed == len(ids)
        assert counts.ctids is not None


@pytest.mark.parametrize(("pages", "connections", "expected"), [(0, 4, 1), (10_000, 1, 1), (10_000, 3, 3)])
def test_large_tables_are_counted_in_parallel_in_one_snapshot(
    settings: Settings, source_copy: str, pages: int, connections: int, expected: int
) -> None:
    source_settings = settings.model_copy(
        update={"synapse_dsn": source_copy, "lakehouse_source_connections": connections}
    )
    started_at = Barrier(expected, timeout=30)
    counts: list[tuple[int, int]] = []

    def count_events(session: Connection) -> None:
        started_at.wait()
        counts.append((session.info.backend_pid, count_rows(session, EVENTS)))

    with (
        export_snapshot(source_settings, catalogue.load_catalogue()) as (connection, snapshot),
        psycopg.connect(source_copy) as source,
    ):
        before = count_rows(connection, EVENTS)
        source.execute("set session_replication_role = replica")
        source.execute("delete from events")
        source.commit()
        with ThreadPoolExecutor(max(connections - 1, 1)) as readers:
            count_tables(source_settings, connection, snapshot, [(pages, count_events)] * 6, readers)
    assert [rows for _, rows in counts] == [before] * 6
    assert len({backend for backend, _ in counts}) == expected


@pytest.mark.parametrize(("at_first", "pause"), [(True, 0), (True, 1), (False, 0)])
def test_no_count_starts_after_a_failed_one(settings: Settings, source_copy: str, at_first: bool, pause: float) -> None:
    """With a pause, the statement over the other connection begins only after the failure."""
    source_settings = settings.model_copy(update={"synapse_dsn": source_copy})
    started_at = Barrier(2, timeout=30)
    late_connections: list[Connection] = []
    with (
        export_snapshot(source_settings, catalogue.load_catalogue()) as (connection, snapshot),
        ThreadPoolExecutor(1) as readers,
    ):

        def fail(session: Connection) -> None:
            started_at.wait()
            fails = (session is connection) is at_first
            if not fails:
                time.sleep(pause)
            # A failure cancels statements on the other connection only.
            session.execute("select 1 / 0" if fails else f"select pg_sleep({600 if at_first else 1})")

        tables: list[CountRows] = [fail, fail, late_connections.append]
        with pytest.raises(psycopg.errors.DivisionByZero if at_first else ReadError, match="division by zero"):
            count_tables(source_settings, connection, snapshot, [(10_000, table) for table in tables], readers)
        connection.rollback()
    assert not late_connections
