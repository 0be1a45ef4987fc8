"""open_run refuses a lake of another homeserver and invalid settings."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException
from typer.testing import CliRunner

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.orchestration import run_lifecycle
from tests.conftest import use_settings
from tests.support.runs import lease_holder, lease_of_another_run

START, END = datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC)
WRONG: list[dict[str, object]] = [
    {"lakehouse_stream_writers": "events"},
    {"synapse_config": Path("/nowhere/homeserver.yaml")},
    {"synapse_config": Path("/etc")},
    {"synapse_config": sample.SAMPLE_CONFIG, "synapse_server_name": "other.example"},
    {"lakehouse_acknowledged_ids": "events:all"},
    {"lakehouse_retention_max_lifetime": "long"},
    {"lakehouse_spark_packages": "group:artifact:1.0"},
    {"lakehouse_spark_secret_file": Path("/nowhere/spark.secret")},
]
OPEN_TASKS = [run_lifecycle.open_run, run_lifecycle.open_maintenance]


@pytest.fixture
def lake(new_lake: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Return a function that changes the settings of an empty lake, which the tasks of this process then open."""
    set_waiting_since(None, monkeypatch)
    monkeypatch.chdir(tmp_path)
    created = new_lake()

    def configure(**changes: object) -> Settings:
        settings = created.model_copy(update=changes)
        use_settings(settings, monkeypatch)
        return settings

    return configure


def set_waiting_since(time: datetime | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the task context: the first try of the task has waited for the lease since ``time``."""
    task = SimpleNamespace(get_first_reschedule_date=lambda _: time)
    context = {"dag": SimpleNamespace(dag_id="lakehouse"), "run_id": "manual__1", "ti": task}
    context |= {"data_interval_start": START, "data_interval_end": END}
    monkeypatch.setattr(run_lifecycle, "get_current_context", lambda: context)


def append_release(server_name: str, settings: Settings) -> None:
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        number = len(store.read_releases(catalog)) + 1
        row = {"release": number, "server_name": server_name, "tables": [], "positions": [], "views": []}
        row |= {"published_at": END, "accepted_at": END}
        store.append_audit_rows(catalog, "audit.releases", [row], Run("run", START, END))


@pytest.mark.parametrize("open_task", OPEN_TASKS)
def test_a_lake_of_another_homeserver_is_refused(open_task: Callable[[], None], lake: Callable[..., Settings]) -> None:
    settings = lake()
    append_release(sample.read_server_name(), settings)
    append_release("example.org", settings)
    refusal = rf"releases of example\.org, but .*{sample.read_server_name()}.*LAKEHOUSE_CATALOG_URI"
    with pytest.raises(AirflowFailException, match=refusal):
        open_task()
    assert lease_holder(settings) is None


@pytest.mark.parametrize("open_task", OPEN_TASKS)
def test_a_lake_of_the_same_homeserver_is_opened(open_task: Callable[[], None], lake: Callable[..., Settings]) -> None:
    settings = lake()
    append_release(sample.read_server_name(), settings)
    open_task()
    assert lease_holder(settings) == "manual__1"


@pytest.mark.parametrize("open_task", OPEN_TASKS)
def test_a_run_that_waits_for_the_lease_frees_its_slot(
    open_task: Callable[[], None], lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lake(lakehouse_lease_wait_seconds=3600)
    other = lease_of_another_run(settings)
    with pytest.raises(AirflowRescheduleException):
        open_task()
    set_waiting_since(datetime.now(UTC) - timedelta(minutes=59), monkeypatch)
    with pytest.raises(AirflowRescheduleException):
        open_task()
    set_waiting_since(datetime.now(UTC) - timedelta(minutes=61), monkeypatch)
    with pytest.raises(AirflowFailException, match="the first run"):
        open_task()
    assert lease_holder(settings) == "the first run"
    other.release()
    open_task()
    assert lease_holder(settings) == "manual__1"


@pytest.mark.parametrize("has_copied", [False, True])
def test_a_failed_copy_is_resumed(has_copied: bool, lake: Callable[..., Settings]) -> None:
    settings, run = lake(), Run("manual__1", START, END)
    run_lifecycle.open_run()
    with closing(open_catalog(settings)) as catalog:
        table = catalog.load_table("bronze.rooms")
        table.append(pa.Table.from_pylist([{}], schema=table.schema().as_arrow()))
        table.manage_snapshots().create_branch(table.refs()["main"].snapshot_id, run.branch).commit()
        if has_copied:
            store.append_audit_rows(catalog, "audit.ledger", [{"table_name": "rooms", "written_at": END}], run)
        run_lifecycle.close_run()
        assert lease_holder(settings) is None
        run_lifecycle.open_run()
        assert (run.branch in catalog.load_table("bronze.rooms").refs()) is not has_copied


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(iter(wrong)))
def test_a_setting_that_later_tasks_read_is_refused_at_once(
    wrong: dict[str, object], lake: Callable[..., Settings]
) -> None:
    settings = lake(**wrong)
    with pytest.raises(AirflowFailException, match=next(iter(wrong)).upper()) as error:
        run_lifecycle.open_run()
    with closing(open_catalog(settings)) as catalog:
        assert not catalog.list_namespaces()
    result = CliRunner().invoke(app, ["doctor", "--format", "json"], env=settings.to_environment())
    assert result.exit_code == 1
    failed = {finding["message"] for finding in json.loads(result.stdout) if finding["level"] == "FAIL"}
    assert str(error.value) in failed


def test_the_compressor_s_configuration_stops_no_other_run(lake: Callable[..., Settings]) -> None:
    settings = lake(lakehouse_compressor_chunk_size="many")
    run_lifecycle.open_run()
    result = CliRunner().invoke(app, ["doctor", "--format", "json"], env=settings.to_environment())
    assert result.exit_code == 1
    (failed,) = [finding for finding in json.loads(result.stdout) if finding["level"] == "FAIL"]
    assert failed["subject"] == "state compressor"


def test_a_pooler_that_drops_session_settings_is_refused(
    lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse_lakehouse.postgres.connection.add_session_settings", lambda dsn, *_: dsn)
    settings = lake(synapse_dsn=source_copy)
    with pytest.raises(AirflowFailException, match="connection pooler") as error:
        run_lifecycle.open_run()
    result = CliRunner().invoke(app, ["doctor", "--format", "json"], env=settings.to_environment())
    assert result.exit_code == 1
    assert str(error.value) in {
        finding["message"] for finding in json.loads(result.stdout) if finding["level"] == "FAIL"
    }


def test_maintenance_records_sizes_once_a_day(lake: Callable[..., Settings]) -> None:
    settings = lake()
    counts = [count_measurements(settings) for _ in range(2)]
    with closing(open_catalog(settings)) as catalog:
        sizes = catalog.load_table("audit.relation_sizes")
        rows = sizes.scan().to_arrow()
        past = pa.array([datetime.now(UTC) - timedelta(hours=21)] * rows.num_rows, rows["measured_at"].type)
        sizes.overwrite(rows.set_column(rows.schema.get_field_index("measured_at"), "measured_at", past))
    assert [*counts, count_measurements(settings)] == [1, 1, 2]


def test_maintenance_opens_without_the_source(lake: Callable[..., Settings]) -> None:
    settings = lake(synapse_dsn="postgresql://127.0.0.1:1/none")
    assert count_measurements(settings) == 0
    assert lease_holder(settings) is None


def count_measurements(settings: Settings) -> int:
    """Open and close a maintenance run, and return the number of measurements of sizes in the lake."""
    run_lifecycle.open_maintenance()
    with closing(open_catalog(settings)) as catalog:
        assert lease_holder(settings) == "manual__1"
        run_lifecycle.close_run()
        return len(set(catalog.load_table("audit.relation_sizes").scan().to_arrow()["measured_at"].to_pylist()))
