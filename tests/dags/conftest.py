"""Shared fixtures: the DAGs, parsed in a temporary Airflow home."""

import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER

if TYPE_CHECKING:
    from airflow.sdk import DAG
    from airflow.sdk.types import Operator

DAGS = PROJECT_FOLDER / "dags"


@pytest.fixture(scope="session")
def dags() -> "Iterator[dict[str, DAG]]":
    """Return every DAG by ID. Airflow is imported here, because it reads AIRFLOW_HOME at its import."""
    with tempfile.TemporaryDirectory(prefix="airflow-") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", home)
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(dag_folder=DAGS, collect_dags=True)
        assert bag.import_errors == {}
        yield dict(bag.dags)


@pytest.fixture(scope="session")
def lakehouse_dag(dags: "dict[str, DAG]") -> "DAG":
    """Return the main DAG."""
    return dags["lakehouse"]


def sorted_task_ids(dag: "DAG") -> list[str]:
    """Return the IDs of the tasks in topological order."""
    sort: Callable[[], list[Operator]] = dag.topological_sort
    return [task.task_id for task in sort()]
