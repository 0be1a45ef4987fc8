"""A Spark app survives the death of an executor, or it fails so that Airflow retries it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import REPORT_PREFIX
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from tests.conftest import run_app
from tests.support.branch_views import create_branch_views
from tests.support.cluster import cluster

RUN = Run("manual", datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
COUNTS = "select (select count(*) from bronze.state_groups), (select count(*) from silver.state_positions)"


@pytest.mark.heavy
def test_resolve_state_survives_a_dead_executor(
    new_lake: Callable[..., Settings], sample_dsn: str, tmp_path: Path
) -> None:
    settings = new_lake(synapse_dsn=sample_dsn)
    tables.ensure_tables(open_catalog(settings), catalogue.load_catalogue())
    with cluster(tmp_path) as spark, ThreadPoolExecutor(1) as pool:
        variables = {"SPARK_MASTER": spark.master, **spark.variables()}
        assert run_app("snapshot_tables", settings, RUN, **variables).returncode == 0
        first_try = pool.submit(run_app, "resolve_state", settings, RUN, **variables)
        while not (executors := list(_list_checkpointing_executors(tmp_path))):
            assert not first_try.done(), first_try.result()
            time.sleep(0.05)
        executors[0].kill()
        result = first_try.result()
        if result.returncode:
            # The executor had the only copy of a block.
            assert REPORT_PREFIX not in result.stderr, "Airflow retries an error without this prefix"
            result = run_app("resolve_state", settings, RUN, **variables)
        assert result.returncode == 0, result.stderr
    with duckdb_reader.open_duckdb(settings) as lake:
        create_branch_views(lake, settings, RUN.branch, ["bronze.state_groups", "silver.state_positions"])
        ((groups, resolved),) = lake.execute(COUNTS).fetchall()
    assert groups == resolved > 0


def _list_checkpointing_executors(folder: Path) -> Iterator[psutil.Process]:
    """Yield the executors of workers in ``folder`` that have a block of a local checkpoint on their disk."""
    for process in psutil.process_iter():
        try:
            if process.name() == "java" and process.cwd().startswith(f"{folder}/"):
                scratch = process.environ().get("SPARK_EXECUTOR_DIRS", "")
                if scratch and any(Path(scratch).glob("**/rdd_*")):
                    yield process
        except (psutil.Error, FileNotFoundError):
            continue
