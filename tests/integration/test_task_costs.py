"""The costs of a task include its own process and the descendants; a run records the costs of its tasks."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from synapse_lakehouse.audit.task_costs import COSTS_TABLE, record_cost
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write.tables import ensure_audit_tables
from tests.conftest import PublishedLake
from tests.support.report_lake import RUNS

BURN = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"


def test_a_completed_task_is_recorded(new_lake: Callable[..., Settings]) -> None:
    with closing(open_catalog(new_lake())) as catalog:
        with record_cost(catalog, RUNS[0], "without a table"):
            pass
        catalog.create_namespace("audit")
        ensure_audit_tables(catalog)
        with record_cost(catalog, RUNS[0], "burn"):
            exec(BURN)
            subprocess.run([sys.executable, "-c", BURN], check=True)
        with pytest.raises(ValueError), record_cost(catalog, RUNS[0], "fail"):  # noqa: PT011
            raise ValueError
        (row,) = catalog.load_table(COSTS_TABLE).scan().to_arrow().to_pylist()
    assert (row["run_id"], row["task"]) == (RUNS[0].run_id, "burn")
    assert 0.9 <= row["cpu_seconds"] < 20
    assert row["seconds"] >= 0.5


def test_a_run_records_all_of_its_tasks(published: PublishedLake) -> None:
    rows = published.rows("query", "select task, seconds, cpu_seconds from audit.task_costs")
    assert {row["task"] for row in rows} >= {
        "snapshot_tables", "measure_streams", "validate_bronze", "resolve_state", "build_models", "validate_gold",
        "publish_release",
    }  # fmt: skip
    # The JVM and the Python workers count.
    assert all(row["cpu_seconds"] > 0.1 for row in rows)
