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
dags = {
    dag_id: {
        "schedule": getattr(dag.timetable, "expression", None),
        "assets": [asset.uri for task in dag.tasks for asset in task.outlets],
        "weights": [(task.weight_rule, task.priority_weight) for task in dag.tasks],
    }
    for dag_id, dag in bag.dags.items()
}
settings = [load_task_settings(f"lakehouse.{name}") for name in ("one", "two", "one")]
print(json.dumps({
    "errors": bag.import_errors, "dags": dags,
    "names": [item.synapse_server_name for item in settings],
    "budgets": [item.lakehouse_gap_budget for item in settings],
}))
"""
NAMES = ("one", "two", "wrong", "slow")
DAGS = ("lake_maintenance", "lakehouse", "state_compression", "stream_watch")


@pytest.fixture(scope="module")
def dag_data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the DAGs of two homeservers and of two with an invalid setting. The folder has misnamed files too."""
    folder = tmp_path_factory.mktemp("homeservers")
    for misnamed in ("Shop.env", ".#one.env"):
        (folder / misnamed).touch()
    settings_by_name: dict[str, dict[str, object]] = {
        "one": {"lakehouse_schedule": "@hourly", "lakehouse_gap_budget": 3},
        "two": {"lakehouse_compressor_enabled": "true"},
        "wrong": {"lakehouse_gap_budget": "many"},
        "slow": {"lakehouse_compressor_time_between_runs": "daily"},
    }
    for name, settings in settings_by_name.items():
        write_homeserver(
            folder, name, synapse_dsn=f"postgresql://r@db/{name}", synapse_server_name=f"{name}.example", **settings
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
    data: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return data


def test_each_homeserver_has_all_dags(dag_data: dict[str, Any]) -> None:
    assert dag_data["errors"] == {}
    assert sorted(dag_data["dags"]) == sorted(f"{dag}.{name}" for dag in DAGS for name in NAMES)


def test_each_homeserver_has_its_schedule(dag_data: dict[str, Any]) -> None:
    assert dag_data["dags"]["lakehouse.one"]["schedule"] == "0 * * * *"
    assert dag_data["dags"]["lakehouse.two"]["schedule"] == "0 0 * * *"


def test_stream_samples_have_the_highest_priority(dag_data: dict[str, Any]) -> None:
    weights = {dag_id: dag["weights"] for dag_id, dag in dag_data["dags"].items()}
    watch_weights = weights.pop("stream_watch.one")
    assert {rule for rule, _ in watch_weights} == {"absolute"}
    # With other rules, the weight of a task is a sum of weights of tasks of its DAG.
    assert min(weight for _, weight in watch_weights) > max(
        sum(weight for _, weight in dag_weights) for dag_id, dag_weights in weights.items() if dag_id.endswith(".one")
    )


def test_homeservers_share_no_asset(dag_data: dict[str, Any]) -> None:
    one, two = (set(dag_data["dags"][f"lakehouse.{name}"]["assets"]) for name in ("one", "two"))
    assert len(one) == len(two) > 50
    assert not one & two


def test_a_task_has_the_settings_of_its_homeserver(dag_data: dict[str, Any]) -> None:
    assert dag_data["names"] == ["one.example", "two.example", "one.example"]
    assert dag_data["budgets"] == [3, None, 3]
