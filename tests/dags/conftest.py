"""The DAGs, parsed in an Airflow home of the tests' own."""

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
    """Every DAG of the project by its id. Airflow is imported here, as it reads AIRFLOW_HOME when it is imported."""
    with tempfile.TemporaryDirectory(prefix="airflow-") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", home)
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(dag_folder=DAGS, collect_dags=True)
        assert bag.import_errors == {}
        yield dict(bag.dags)


@pytest.fixture(scope="session")
def lakehouse_dag(dags: "dict[str, DAG]") -> "DAG":
    """The main job."""
    return dags["lakehouse"]


def in_order(dag: "DAG") -> list[str]:
    """Ids of the tasks, each after those that it waits for."""
    sort: Callable[[], list[Operator]] = dag.topological_sort
    return [task.task_id for task in sort()]
