"""The wiring of maintenance: files are maintained after a failed copy, and the failure stays visible."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.conftest import sorted_task_ids

if TYPE_CHECKING:
    from airflow.sdk import DAG

ORDER = [
    "open_run",
    "bronze.reconcile_bronze",
    "audit_bronze.measure_streams",
    "audit_bronze.validate_bronze",
    "silver_and_gold.resolve_state",
    "silver_and_gold.dbt_build",
    "audit_gold.validate_gold",
    "publish_release",
    "maintain_lake",
    "report_reconciliation",
    "write_page",
    "close_run",
]


@pytest.fixture(scope="module")
def dag(dags: "dict[str, DAG]") -> "DAG":
    return dags["lake_maintenance"]


def test_the_tasks_run_one_after_another(dag: "DAG") -> None:
    assert sorted_task_ids(dag) == ORDER


def test_maintenance_has_an_hour_of_its_own(dag: "DAG", lakehouse_dag: "DAG") -> None:
    from airflow.sdk import CronDataIntervalTimetable

    assert isinstance(dag.timetable, CronDataIntervalTimetable)
    assert isinstance(lakehouse_dag.timetable, CronDataIntervalTimetable)
    assert dag.timetable.expression != lakehouse_dag.timetable.expression
    assert not dag.catchup
    assert dag.max_active_runs == 1


def test_opening_and_the_copy_exclude_each_other(dag: "DAG") -> None:
    two_slot_tasks = {task.task_id for task in dag.tasks if task.pool == "spark_drivers" and task.pool_slots == 2}
    assert two_slot_tasks == {"open_run", "bronze.reconcile_bronze"}


def test_tasks_of_started_runs_have_priority(dag: "DAG") -> None:
    assert {(task.weight_rule, task.priority_weight) for task in dag.tasks} == {("upstream", 1)}


def test_files_are_maintained_after_a_failed_copy(dag: "DAG") -> None:
    from airflow.sdk import TriggerRule

    maintain = dag.get_task("maintain_lake")
    assert maintain.trigger_rule == TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    assert maintain.upstream_task_ids == {"open_run", "publish_release"}


def test_a_failed_copy_fails_the_run_despite_maintained_files(dag: "DAG") -> None:
    from airflow.sdk import TriggerRule

    (close,) = (task for task in dag.tasks if task.is_teardown)
    assert close.task_id == "close_run"
    last = [task for task in dag.tasks if task.downstream_task_ids == {close.task_id}]
    assert [task.task_id for task in last] == ["write_page"]
    assert last[0].upstream_task_ids == {"report_reconciliation"}
    report = dag.get_task("report_reconciliation")
    assert last[0].trigger_rule == report.trigger_rule == TriggerRule.ALL_SUCCESS
    assert report.upstream_task_ids == {"publish_release", "maintain_lake"}


@pytest.mark.parametrize(
    ("task_id", "variable", "param", "param_value", "setting_value"),
    [
        ("bronze.reconcile_bronze", "LAKEHOUSE_PARITY_SECONDS", "parity_seconds", None, "60"),
        ("bronze.reconcile_bronze", "LAKEHOUSE_PARITY_SECONDS", "parity_seconds", 5, "5"),
        ("maintain_lake", "LAKEHOUSE_ERASURE_DAYS", "erasure_days", None, "30"),
        ("maintain_lake", "LAKEHOUSE_ERASURE_DAYS", "erasure_days", 0, "0"),
    ],
)
def test_a_run_may_be_started_with_other_settings(
    dag: "DAG", task_id: str, variable: str, param: str, param_value: int | None, setting_value: str
) -> None:
    task: Any = dag.get_task(task_id).prepare_for_execution()
    moment = datetime(2026, 11, 17, tzinfo=UTC)
    context = {"dag": dag, "run_id": "manual__1", "data_interval_start": moment, "data_interval_end": moment}
    task.render_template_fields(context | {"params": {param: param_value}})
    assert task.env_vars == {variable: setting_value}
