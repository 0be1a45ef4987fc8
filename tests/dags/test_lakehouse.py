"""The wiring of the main DAG."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from tests.dags.conftest import sorted_task_ids

if TYPE_CHECKING:
    from airflow.sdk import DAG

ORDER = [
    "bronze.open_run",
    "bronze.snapshot_tables",
    "audit_bronze.measure_streams",
    "audit_bronze.validate_bronze",
    "silver_and_gold.resolve_state",
    "silver_and_gold.dbt_build",
    "audit_gold.validate_gold",
    "publish.publish_release",
    "write_page",
    "close_run",
]
SPARK = [task for task in ORDER if task.endswith(("tables", "streams", "state", "build", "release"))]
INTERVAL = Run("scheduled__2026-11-17T00:00:00+00:00", *(datetime(2026, 11, day, tzinfo=UTC) for day in (17, 18)))
SECRET = "not-to-be-shown"


def test_the_tasks_run_one_after_another(lakehouse_dag: "DAG") -> None:
    assert sorted_task_ids(lakehouse_dag) == ORDER
    for task_id, next_id in pairwise(ORDER):
        assert lakehouse_dag.get_task(task_id).downstream_task_ids == {next_id}


def test_one_run_is_one_day_in_utc(lakehouse_dag: "DAG") -> None:
    from airflow.sdk import CronDataIntervalTimetable

    assert isinstance(lakehouse_dag.timetable, CronDataIntervalTimetable)
    assert (lakehouse_dag.timetable.expression, str(lakehouse_dag.timetable.timezone)) == ("0 0 * * *", "UTC")
    assert lakehouse_dag.catchup is False
    assert lakehouse_dag.max_active_runs == 1
    assert lakehouse_dag.dagrun_timeout is not None
    assert lakehouse_dag.dagrun_timeout < timedelta(days=1)


def test_one_run_at_a_time_opens_or_copies(lakehouse_dag: "DAG") -> None:
    from synapse_lakehouse.local.airflow.prepare_airflow import POOLS

    slots = {task.task_id: task.pool_slots for task in lakehouse_dag.tasks if task.pool == "spark_drivers"}
    assert slots == dict.fromkeys(SPARK, 1) | {"bronze.open_run": 2, "bronze.snapshot_tables": 2}
    assert POOLS["spark_drivers"][0] < 2 * 2


def test_tasks_of_started_runs_have_priority(lakehouse_dag: "DAG") -> None:
    assert {(task.weight_rule, task.priority_weight) for task in lakehouse_dag.tasks} == {("upstream", 1)}


def test_tasks_with_transient_failures_are_retried(lakehouse_dag: "DAG") -> None:
    retries = {task.task_id: task.retries or 0 for task in lakehouse_dag.tasks}
    assert all(retries[task] > 0 for task in [*SPARK, "bronze.open_run", "close_run"])
    assert retries["audit_bronze.validate_bronze"] == retries["audit_gold.validate_gold"] == 0
    assert retries["write_page"] == 0, "write_page never fails"


def test_close_run_always_runs_and_hides_no_failure(lakehouse_dag: "DAG") -> None:
    from airflow.sdk import TriggerRule

    close = lakehouse_dag.get_task("close_run")
    assert close.is_teardown
    assert not close.on_failure_fail_dagrun
    assert close.trigger_rule == TriggerRule.ALL_DONE_SETUP_SUCCESS
    assert not any(task.is_setup for task in lakehouse_dag.tasks)


def test_publishing_updates_an_asset_per_table(lakehouse_dag: "DAG") -> None:
    outlets = {task.task_id: task.outlets for task in lakehouse_dag.tasks if task.outlets}
    assert list(outlets) == ["publish.publish_release"]
    uris = {asset.uri for asset in outlets["publish.publish_release"]}
    assert uris >= {f"lakehouse://bronze/{table.name}" for table in catalogue.load_catalogue().copied_tables()}
    assert uris >= {"lakehouse://audit/releases", "lakehouse://gold/events", "lakehouse://gold/current_rooms"}
    assert len({asset.name for asset in outlets["publish.publish_release"]}) == len(uris)


@pytest.mark.parametrize("task_id", SPARK)
def test_spark_apps_get_the_run_and_no_secret(
    lakehouse_dag: "DAG", task_id: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home))
    monkeypatch.setenv("SYNAPSE_DSN", f"postgresql://synapse:{SECRET}@127.0.0.1/synapse")
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", f"postgresql://lake:{SECRET}@127.0.0.1/lake")
    monkeypatch.setenv("LAKEHOUSE_CATALOG_PROPERTIES", json.dumps({"s3.secret-access-key": SECRET}))
    task: Any = lakehouse_dag.get_task(task_id).prepare_for_execution()
    context = {
        "dag": lakehouse_dag,
        "run_id": INTERVAL.run_id,
        "data_interval_start": INTERVAL.start,
        "data_interval_end": INTERVAL.end,
    }

    task.render_template_fields(context)

    rendered = {name: getattr(task, name) for name in task.template_fields}
    assert rendered["application_args"] == INTERVAL.to_arguments()
    assert rendered["driver_class_path"].count(".jar") >= 2
    assert rendered["conf"]["spark.driver.memory"] == "2g"
    assert SECRET not in json.dumps(rendered)
    assert task._conn_id == "spark_default"
