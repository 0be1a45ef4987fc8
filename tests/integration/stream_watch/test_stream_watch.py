"""The stream watch on a real database and a real lake."""

import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.types import RuntimeTaskInstanceProtocol

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.alerts.live_check import check_lake
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port
from synapse_lakehouse.orchestration.stream_watch_tasks import preflight, watch_streams
from synapse_lakehouse.postgres import live_stream_positions
from synapse_lakehouse.postgres.errors import ReadError
from tests.integration.stream_watch.conftest import Samples

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


def test_open_idle_and_vanished_writers_are_recorded(source_copy: str, take_samples: Callable[[], Samples]) -> None:
    before = take_samples()
    assert before["events"]["safe_bound"] == before["events"]["last_allocated_id"]
    assert before["events"]["open_since"] is None
    assert before["backfill"]["rule"] == "missing_writer"

    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute(IN_FLIGHT)
        synapse.execute(NEXT_COMMITS)
        synapse.execute(VANISHES)
    first, second = take_samples(), take_samples()

    assert first["events"]["safe_bound"] == before["events"]["safe_bound"]
    assert first["events"]["open_since"] == first["events"]["watched_at"] == second["events"]["open_since"]
    assert second["receipts"]["vanished_writers"] == ["worker1"]
    assert second["receipts"]["safe_bound"] is None


def test_a_regressed_database_is_one_incident(source_copy: str, take_samples: Callable[[], Samples]) -> None:
    def list_incident_events() -> list[tuple[str, str, bool]]:
        with closing(open_catalog(Settings())) as catalog:
            rows = catalog.load_table("audit.incidents").scan().to_arrow().sort_by("at").to_pylist()
        return [(row["kind"], row["subject"], row["begins"]) for row in rows if row["kind"] and not row["sink"]]

    take_samples()
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("update stream_positions set stream_id = stream_id - 100 where stream_name = 'events'")
        take_samples(), take_samples()
        assert list_incident_events() == [("position-went-back", "stream events", True)]
        synapse.execute("update stream_positions set stream_id = stream_id + 100 where stream_name = 'events'")
        take_samples()
    assert list_incident_events()[1:] == [("position-went-back", "stream events", False)]


def test_idle_and_removed_writers_do_not_stop_the_bound(
    source_copy: str, take_samples: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream_positions, "_MAX_IDS", 20)
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute(IDLE)
        # Synapse keeps the position of a removed writer until one of its processes starts.
        synapse.execute(
            "insert into stream_positions select stream_name, 'removed1', min(stream_id) from stream_positions"
            " where stream_name = 'events' group by stream_name"
        )
        bounds = []
        for _ in range(3):
            for _ in range(15):
                synapse.execute(NEXT_COMMITS.replace("$late", f"${uuid.uuid4()}"))
            bounds.append(take_samples()["events"])
    assert [bound["safe_bound"] for bound in bounds] == [bound["last_allocated_id"] for bound in bounds]
    assert {bound["open_since"] for bound in bounds} == {None}


def test_a_lake_without_a_release_becomes_overdue(take_samples: Callable[[], Samples]) -> None:
    take_samples()
    with closing(open_catalog(Settings())) as catalog:
        assert check_lake(Settings(), catalog, []) == (None, [])
        impatient = Settings().model_copy(update={"lakehouse_overdue_hours": 0})
        _, (overdue,) = check_lake(impatient, catalog, [])
    assert "0 hours old" in overdue.description


def test_overdue_is_reported_without_the_source(
    take_samples: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_samples()
    long_ago = datetime.now(UTC) - timedelta(days=9)
    with closing(open_catalog(Settings())) as catalog:
        run = Run("run", long_ago - timedelta(days=1), long_ago)
        release: dict[str, object] = {"release": 1, "server_name": Settings().synapse_server_name}
        release |= {"tables": [], "positions": [], "views": [], "published_at": long_ago, "accepted_at": long_ago}
        store.append_audit_rows(catalog, "audit.releases", [release], run)
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
@pytest.mark.usefixtures("take_samples")
def test_an_unreachable_source_has_no_traceback(task: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNAPSE_DSN", f"postgresql://someone@127.0.0.1:{find_free_port()}/synapse")
    with pytest.raises(AirflowFailException, match="No connection"):
        task()


@pytest.mark.usefixtures("take_samples")
def test_invalid_writers_have_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_STREAM_WRITERS", "persister1")
    with pytest.raises(AirflowFailException, match="LAKEHOUSE_STREAM_WRITERS"):
        watch_streams()


def test_a_table_that_may_be_left_out_hides_no_other_stream(
    source_copy: str, take_samples: Callable[[], Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("alter table push_rules_stream rename column stream_id to id")
    with pytest.raises(ReadError):
        watch_streams()
    monkeypatch.setenv("LAKEHOUSE_ON_DRIFT", "partial")
    samples = take_samples()
    assert samples["events"]["safe_bound"] == samples["events"]["last_allocated_id"]
    assert samples["push_rules"]["last_allocated_id"]
    preflight()
