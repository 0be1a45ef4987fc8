"""The stream watch on a real database and a real lake."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.types import RuntimeTaskInstanceProtocol

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.alerts.live_check import check_lake, check_reports
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, find_free_port
from synapse_lakehouse.orchestration.stream_watch_tasks import preflight, watch_streams
from synapse_lakehouse.postgres import live_stream_positions, recent_reports
from synapse_lakehouse.postgres.errors import ReadError
from tests.conftest import lakehouse
from tests.support.split_source import split_source

WRITERS = "events:persister1,persister2 receipts:worker1"
NOW = "(extract(epoch from now()) * 1000)::bigint"
Looks = dict[str, dict[str, object]]
Source = psycopg.Connection[Any]

IN_FLIGHT = "select nextval('events_stream_seq')"
NEXT_COMMITS = """
with next as (select nextval('events_stream_seq') as id),
     event as (insert into ex_outlier_stream (event_stream_ordering, event_id, state_group, instance_name)
               select id, '$late', 1, 'persister2' from next)
update stream_positions set stream_id = next.id from next
 where stream_name = 'events' and instance_name = 'persister2'
"""
IDLE = """
update stream_positions set stream_id = (select last_value from events_stream_seq)
 where stream_name = 'events' and instance_name = 'persister1'
"""
VANISHES = "delete from stream_positions where stream_name = 'receipts' and instance_name = 'worker1'"


def use(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of the DAG's tasks."""
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def looked(source_copy: str, new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> Callable[[], Looks]:
    """Looks at the streams as the DAG's task does; the latest look at each stream as the command shows it."""
    settings = new_lake(synapse_dsn=source_copy, lakehouse_stream_writers=WRITERS)
    use(settings, monkeypatch)

    def look() -> Looks:
        watch_streams()
        reported = lakehouse(settings, "positions", "--history", "--format", "json")
        assert lakehouse(settings, "positions", "--history").stdout.startswith("Latest samples")
        return {row["stream"]: row for row in json.loads(reported.stdout)}

    return look


def test_open_idle_and_vanished_writers_are_recorded(source_copy: str, looked: Callable[[], Looks]) -> None:
    quiet = looked()
    assert quiet["events"]["safe_bound"] == quiet["events"]["last_allocated_id"]
    assert quiet["events"]["open_since"] is None
    assert quiet["backfill"]["rule"] == "missing_writer"

    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute(IN_FLIGHT)
        synapse.execute(NEXT_COMMITS)
        synapse.execute(VANISHES)
    first, second = looked(), looked()

    assert first["events"]["safe_bound"] == quiet["events"]["safe_bound"]
    assert first["events"]["open_since"] == first["events"]["watched_at"] == second["events"]["open_since"]
    assert second["receipts"]["vanished_writers"] == ["worker1"]
    assert second["receipts"]["safe_bound"] is None


def test_a_regressed_database_is_one_incident(source_copy: str, looked: Callable[[], Looks]) -> None:
    def list_incident_events() -> list[tuple[str, str, bool]]:
        with closing(open_catalog(Settings())) as catalog:
            rows = catalog.load_table("audit.incidents").scan().to_arrow().sort_by("at").to_pylist()
        return [(row["kind"], row["subject"], row["begins"]) for row in rows if row["kind"] and not row["sink"]]

    looked()
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("update stream_positions set stream_id = stream_id - 100 where stream_name = 'events'")
        looked(), looked()
        assert list_incident_events() == [("position-went-back", "stream events", True)]
        synapse.execute("update stream_positions set stream_id = stream_id + 100 where stream_name = 'events'")
        looked()
    assert list_incident_events()[1:] == [("position-went-back", "stream events", False)]


def list_reports() -> list[tuple[str, bool, str]]:
    """Subject, begin and description of each incident event of a report."""
    with closing(open_catalog(Settings())) as catalog:
        events = incident_log.read_incident_log(catalog).events
    return [
        (event.subject, event.begins, event.description) for event in events if event.kind == IncidentKind.NEW_REPORT
    ]


@pytest.fixture
def synapse(source_copy: str) -> Iterator[Source]:
    """The source, with old reports only."""
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        for table in ("event_reports", "room_reports", "user_reports"):
            synapse.execute(f"update {table} set received_ts = 0".encode())
        yield synapse


def test_each_new_report_is_one_incident_without_ids(synapse: Source, looked: Callable[[], Looks]) -> None:
    looked()
    assert list_reports() == []
    synapse.execute(f"insert into event_reports values (901, {NOW}, '!r', '$e', '@a:b', 'SECRET', '{{}}')")
    synapse.execute(f"insert into user_reports values (902, {NOW}, '@bad:c', '@a:b', 'SECRET')")
    looked(), looked()
    sent = "a user sent a report"
    assert sorted(list_reports()) == [("event report 901", True, sent), ("user report 902", True, sent)]
    synapse.execute("delete from user_reports where id = 902")
    synapse.execute(f"insert into room_reports values (903, {NOW}, '!r', '@a:b', 'SECRET')")
    looked()
    assert sorted(list_reports()[2:]) == [("room report 903", True, sent), ("user report 902", False, sent)]
    assert [finding.details for finding in check_reports(Settings(), None)] == [
        "@a:b reported the event $e", "@a:b reported the room !r",
    ]  # fmt: skip


def test_reports_during_a_stop_of_the_watch_are_new(synapse: Source, looked: Callable[[], Looks]) -> None:
    looked()
    with closing(open_catalog(Settings())) as catalog:
        samples = catalog.load_table("audit.stream_watch")
        rows = samples.scan().to_arrow()
        past = pa.array([datetime.now(UTC) - timedelta(days=9)] * rows.num_rows, rows["watched_at"].type)
        samples.overwrite(rows.set_column(rows.schema.get_field_index("watched_at"), "watched_at", past))
    reported = f"{NOW} - 86400000 * "
    for id, days in ((901, 20), (902, 8), (903, 1)):
        synapse.execute(f"insert into user_reports values ({id}, {reported} {days}, '@bad:c', '@a:b', '')".encode())
    looked(), looked()
    assert [(subject, begins) for subject, begins, _ in list_reports()] == [
        ("user report 902", True), ("user report 903", True), ("user report 902", False),
    ]  # fmt: skip


def test_more_reports_than_are_read_are_counted(
    synapse: Source, looked: Callable[[], Looks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_reports, "MAX_REPORTS", 3)
    many = f"select id, {NOW}, '@bad:c', '@a:b', '' from generate_series(901, 2134) id"
    synapse.execute(f"insert into user_reports {many}".encode())
    looked(), looked()
    reports = {subject: description for subject, begins, description in list_reports() if begins}
    assert set(reports) == {"user reports", *(f"user report {id}" for id in (2132, 2133, 2134))}
    assert "1,234" in reports["user reports"]


def test_idle_and_removed_writers_do_not_stop_the_bound(
    source_copy: str, looked: Callable[[], Looks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream_positions, "_MAX_IDS", 20)
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute(IDLE)
        # Until one of its processes starts, Synapse keeps the position of a writer that was removed.
        synapse.execute(
            "insert into stream_positions select stream_name, 'removed1', min(stream_id) from stream_positions"
            " where stream_name = 'events' group by stream_name"
        )
        bounds = []
        for _ in range(3):
            for _ in range(15):
                synapse.execute(NEXT_COMMITS.replace("$late", f"${uuid.uuid4()}"))
            bounds.append(looked()["events"])
    assert [bound["safe_bound"] for bound in bounds] == [bound["last_allocated_id"] for bound in bounds]
    assert {bound["open_since"] for bound in bounds} == {None}


def test_faults_that_stop_synapse_s_start_are_reported(source_copy: str, looked: Callable[[], Looks]) -> None:
    looked()
    preflight()

    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("select setval('events_stream_seq', 5)")
    with pytest.raises(
        AirflowFailException, match=r"Synapse will refuse to start(?s:.*)select setval\('events_stream_seq', "
    ):
        preflight()


def test_sequences_without_a_stream_are_checked(source_copy: str, looked: Callable[[], Looks]) -> None:
    looked()
    furthest = {}
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("insert into application_services_txns (as_id, txn_id, event_ids) values ('bridge', 7, '[]')")
        for sequence, table, column in (
            ("state_group_id_seq", "state_groups", "id"),
            ("event_auth_chain_id", "event_auth_chains", "chain_id"),
            ("application_services_txn_id_seq", "application_services_txns", "txn_id"),
        ):
            (furthest[sequence],) = synapse.execute(f"select max({column}) from {table}".encode()).fetchone() or (0,)
            synapse.execute(f"select setval('{sequence}', 2)".encode())
        synapse.execute("insert into stream_positions values ('e2e_cross_signing_keys', 'master', 10000)")
        synapse.execute("insert into device_lists_remote_pending values (20000, '@far:away.example', 'DEVICE')")
    with pytest.raises(AirflowFailException) as reported:
        preflight()
    repairs = {"e2e_cross_signing_keys_sequence": 10000, "device_lists_sequence": 20000} | furthest
    for sequence, end in repairs.items():
        assert f"select setval('{sequence}', {end});" in str(reported.value)
    assert str(reported.value).count("setval") == len(repairs)
    assert "master" in str(reported.value)


def test_the_sequence_of_a_state_database_is_checked(
    server: EmbeddedServer, new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    with split_source(server) as (main, state):
        settings = new_lake(synapse_dsn=main, synapse_state_dsn=state, lakehouse_stream_writers=WRITERS)
        use(settings, monkeypatch)
        watch_streams()
        preflight()
        with psycopg.connect(state, autocommit=True) as synapse:
            (furthest,) = synapse.execute("select max(id) from state_groups").fetchone() or (0,)
            synapse.execute("select setval('state_group_id_seq', 2)")
        with pytest.raises(AirflowFailException, match=rf"setval\('state_group_id_seq', {furthest}\)"):
            preflight()
        watched = lakehouse(settings, "positions", "--history", "--format", "json")
        assert {row["stream"] for row in json.loads(watched.stdout)} >= {"events", "receipts"}


def test_preflight_fails_if_a_stream_is_unreadable(source_copy: str, looked: Callable[[], Looks]) -> None:
    looked()
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("alter table receipts_linearized rename to receipts_elsewhere")
    with pytest.raises(ReadError):
        preflight()


def test_a_lake_without_a_release_becomes_overdue(looked: Callable[[], Looks]) -> None:
    looked()
    with closing(open_catalog(Settings())) as catalog:
        assert check_lake(Settings(), catalog, []) == (None, [])
        impatient = Settings().model_copy(update={"lakehouse_overdue_hours": 0})
        _, (overdue,) = check_lake(impatient, catalog, [])
    assert "0 hours old" in overdue.description


def test_overdue_is_reported_without_the_source(looked: Callable[[], Looks], monkeypatch: pytest.MonkeyPatch) -> None:
    looked()
    long_ago = datetime.now(UTC) - timedelta(days=9)
    with closing(open_catalog(Settings())) as catalog:
        run = Run("run", long_ago - timedelta(days=1), long_ago)
        store.append_audit_rows(catalog, "audit.releases", [{"release": 1, "tables": [], "positions": [], "views": []}
                                                 | {"published_at": long_ago}], run)  # fmt: skip
    monkeypatch.setenv("SYNAPSE_DSN", f"postgresql://someone@127.0.0.1:{find_free_port()}/synapse")
    with pytest.raises(AirflowFailException, match="No connection"):
        watch_streams(
            cast(RuntimeTaskInstanceProtocol, SimpleNamespace(dag_id="stream_watch", log_url="https://airflow/log"))
        )
    with closing(open_catalog(Settings())) as catalog:
        assert [(event.kind, event.page) for event in incident_log.read_incident_log(catalog).events] == [
            (IncidentKind.RELEASE_OVERDUE, "https://airflow/log")
        ]


@pytest.mark.parametrize("task", [watch_streams, preflight])
@pytest.mark.usefixtures("looked")
def test_an_unreachable_source_has_no_traceback(task: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNAPSE_DSN", f"postgresql://someone@127.0.0.1:{find_free_port()}/synapse")
    with pytest.raises(AirflowFailException, match="No connection"):
        task()


@pytest.mark.usefixtures("looked")
def test_invalid_writers_have_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_STREAM_WRITERS", "persister1")
    with pytest.raises(AirflowFailException, match="LAKEHOUSE_STREAM_WRITERS"):
        watch_streams()


def test_a_table_that_may_be_left_out_hides_no_other_stream(
    source_copy: str, looked: Callable[[], Looks], monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("alter table push_rules_stream rename column stream_id to id")
    with pytest.raises(ReadError):
        watch_streams()
    monkeypatch.setenv("LAKEHOUSE_ON_DRIFT", "partial")
    looks = looked()
    assert looks["events"]["safe_bound"] == looks["events"]["last_allocated_id"]
    assert looks["push_rules"]["last_allocated_id"]
    preflight()
