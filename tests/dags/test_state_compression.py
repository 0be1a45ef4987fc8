"""The DAG of the state compressor is disabled by default and writes nothing without an approval."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from synapse_lakehouse.compressor.settings import CompressorSettings, load_compressor_settings
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from tests.dags.conftest import sorted_task_ids

if TYPE_CHECKING:
    from airflow.sdk import DAG

ORDER = ["plan_compression", "show_plan", "approve", "apply", "verify"]
MOMENT = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.fixture(scope="module")
def dag(dags: "dict[str, DAG]") -> "DAG":
    return dags["state_compression"]


def test_the_tasks_run_one_after_another(dag: "DAG") -> None:
    assert sorted_task_ids(dag) == ORDER
    for task_id, next_id in pairwise(ORDER):
        assert dag.get_task(task_id).downstream_task_ids == {next_id}


def test_the_dag_writes_only_if_unpaused_and_approved(dag: "DAG") -> None:
    assert dag.is_paused_upon_creation
    assert "impact:writes-source" in dag.tags
    approve: Any = dag.get_task("approve")
    assert (approve.defaults, approve.options) == (["Reject"], ["Approve", "Reject"])
    assert approve.response_timeout == timedelta(days=1)
    assert dag.dagrun_timeout is not None
    assert approve.response_timeout < dag.dagrun_timeout


def test_the_dag_has_no_schedule_unless_it_is_enabled(dag: "DAG", enabled_dag: "DAG") -> None:
    from airflow.sdk import DeltaDataIntervalTimetable

    assert type(dag.timetable).__name__ == "NullTimetable"
    assert isinstance(enabled_dag.timetable, DeltaDataIntervalTimetable)
    assert enabled_dag.timetable.delta == timedelta(hours=12)
    approve: Any = enabled_dag.get_task("approve")
    assert approve.response_timeout == timedelta(hours=12)
    assert not enabled_dag.catchup


@pytest.fixture
def enabled_dag(dags: object, monkeypatch: pytest.MonkeyPatch) -> "DAG":
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_ENABLED", "true")
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_TIME_BETWEEN_RUNS", "12h")
    return DagBag(dag_folder=PROJECT_FOLDER / "dags" / "state_compression.py", collect_dags=True).dags[
        "state_compression"
    ]


def test_a_manual_run_of_a_disabled_compressor_is_skipped(dag: "DAG", monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from synapse_lakehouse.orchestration.compression_tasks import skip_if_disabled

    with pytest.raises(AirflowSkipException, match="LAKEHOUSE_COMPRESSOR_ENABLED=true"):
        skip_if_disabled({"dag": dag})
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_ENABLED", "true")
    skip_if_disabled({"dag": dag})


def test_the_settings_can_approve_all_plans(dag: "DAG", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_APPLY", "true")
    approve: Any = dag.get_task("approve")
    assert approve.execute({}) is None


def test_without_write_access_applying_fails_immediately(dag: "DAG", monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from synapse_lakehouse.orchestration import compression_tasks

    run = {
        "dag": dag,
        "run_id": "manual__1",
        "data_interval_start": MOMENT,
        "data_interval_end": MOMENT.replace(day=18),
    }
    monkeypatch.setattr(compression_tasks, "get_current_context", lambda: run)
    with pytest.raises(AirflowFailException, match=r"SYNAPSE_WRITE_DSN is not set(?s:.*)lakehouse grants --compress"):
        compression_tasks.apply_compression()


@pytest.mark.parametrize(
    ("params", "settings_values"),
    [
        ({}, {"rooms": ("!set:x",), "number_of_rooms": 5, "strategy": "best"}),
        ({"number_of_rooms": 3}, {"rooms": (), "number_of_rooms": 3, "strategy": "best"}),
        (
            {"rooms": ['!it\'s "{{ 1 }}":x', "!b:x"], "number_of_rooms": 7, "strategy": "levels", "max_chain": 50},
            {"rooms": ('!it\'s "{{ 1 }}":x', "!b:x"), "number_of_rooms": 7, "strategy": "levels", "max_chain": 50},
        ),
    ],
)
def test_a_run_may_be_started_with_other_settings(
    dag: "DAG", params: dict[str, object], settings_values: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_ROOMS", "!set:x")
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_STRATEGY", "best")
    monkeypatch.setenv("SYNAPSE_WRITE_DSN", "postgresql://it:not-to-be-shown@127.0.0.1/synapse")
    task: Any = dag.get_task("plan_compression").prepare_for_execution()
    params = dict.fromkeys(dag.params, None) | {"rooms": []} | params
    context = {"dag": dag, "run_id": "manual__1", "data_interval_start": MOMENT, "data_interval_end": MOMENT}

    task.render_template_fields(context | {"params": params})

    assert "not-to-be-shown" not in json.dumps({name: getattr(task, name) for name in task.template_fields})
    for name, value in task.env_vars.items():
        monkeypatch.setenv(name, value)
    assert vars(load_compressor_settings(Settings(_env_file=None))) == vars(CompressorSettings(**settings_values))
