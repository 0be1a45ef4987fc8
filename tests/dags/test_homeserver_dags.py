"""Each homeserver has its own DAGs, with its own schedule and assets; its tasks use its settings."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from tests.support.homeserver_files import write_homeserver

PARSE = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1], collect_dags=True)
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
answers = {
    dag_id: {
        "schedule": getattr(dag.timetable, "expression", None),
        "assets": [asset.uri for task in dag.tasks for asset in task.outlets],
        "weights": [(task.weight_rule, task.priority_weight) for task in dag.tasks],
    }
    for dag_id, dag in bag.dags.items()
}
settings = [load_task_settings(f"lakehouse.{name}") for name in ("one", "two", "one")]
print(json.dumps({
    "errors": bag.import_errors, "dags": answers,
    "names": [each.synapse_server_name for each in settings],
    "budgets": [each.lakehouse_gap_budget for each in settings],
}))
"""
NAMES = ("one", "two", "wrong", "slow")
DAGS = ("lake_maintenance", "lakehouse", "state_compression", "stream_watch")


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of two homeservers, and of two with a wrong setting; and files that belong to none."""
    folder = tmp_path_factory.mktemp("homeservers")
    for misnamed in ("Shop.env", ".#one.env"):
        (folder / misnamed).touch()
    own: dict[str, dict[str, object]] = {
        "one": {"lakehouse_schedule": "@hourly", "lakehouse_gap_budget": 3},
        "two": {"lakehouse_compressor_enabled": "true"},
        "wrong": {"lakehouse_gap_budget": "many"},
        "slow": {"lakehouse_compressor_time_between_runs": "daily"},
    }
    for name, further in own.items():
        write_homeserver(
            folder, name, synapse_dsn=f"postgresql://r@db/{name}", synapse_server_name=f"{name}.example", **further
        )
    variables = {
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "LAKEHOUSE_HOMESERVERS": str(folder),
        "LAKEHOUSE_CATALOG_URI": "postgresql://lake@db/{homeserver}",
    }
    result = subprocess.run(
        [sys.executable, "-c", PARSE, PROJECT_FOLDER / "dags"],
        env=os.environ | variables, text=True, capture_output=True, check=True,
    )  # fmt: skip
    answers: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answers


def test_each_homeserver_has_all_dags(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert sorted(parsed["dags"]) == sorted(f"{dag}.{name}" for dag in DAGS for name in NAMES)


def test_each_homeserver_has_its_schedule(parsed: dict[str, Any]) -> None:
    assert parsed["dags"]["lakehouse.one"]["schedule"] == "0 * * * *"
    assert parsed["dags"]["lakehouse.two"]["schedule"] == "0 0 * * *"


def test_samples_of_the_streams_come_before_all_other_tasks(parsed: dict[str, Any]) -> None:
    weights = {dag_id: answers["weights"] for dag_id, answers in parsed["dags"].items()}
    watching = weights.pop("stream_watch.one")
    assert {rule for rule, _ in watching} == {"absolute"}
    # With the other rules, the weight of a task is the sum of those of tasks of its DAG.
    assert min(weight for _, weight in watching) > max(
        sum(weight for _, weight in of_dag) for dag_id, of_dag in weights.items() if dag_id.endswith(".one")
    )


def test_homeservers_share_no_asset(parsed: dict[str, Any]) -> None:
    one, two = (set(parsed["dags"][f"lakehouse.{name}"]["assets"]) for name in ("one", "two"))
    assert len(one) == len(two) > 50
    assert not one & two


def test_a_task_has_the_settings_of_its_homeserver(parsed: dict[str, Any]) -> None:
    assert parsed["names"] == ["one.example", "two.example", "one.example"]
    assert parsed["budgets"] == [3, None, 3]
