"""The DAGs ``lakehouse`` and ``lake_maintenance`` share these task groups and tasks: audits, models, end of a run."""

from datetime import timedelta
from typing import Any, Final

from airflow.sdk import WeightRule, task, task_group

from synapse_lakehouse.orchestration import callbacks, page_tasks, run_lifecycle, spark_tasks, validation_tasks

OPEN_RUN: Final[dict[str, Any]] = {
    "task_display_name": "Open the run",
    "retries": 3,
    "retry_delay": timedelta(minutes=1),
    "pool": spark_tasks.SPARK_POOL,
    "pool_slots": spark_tasks.COPY_SLOTS,
}
"""Arguments of the task that opens a run."""

DEFAULT_ARGUMENTS: Final[dict[str, Any]] = {
    "owner": "lakehouse",
    "retries": 0,
    # Runs that have begun get the next free slot, because a run's lake lease expires if the run's next task waits long.
    "weight_rule": WeightRule.UPSTREAM,
    "on_failure_callback": callbacks.alert_on_dag_failure,
}
"""Arguments of all tasks of both DAGs."""


@task_group(group_display_name="Audit of bronze", tooltip="Spark measures the branch, Great Expectations validates it")
def audit_bronze() -> None:
    """Measure the branch, then validate it."""
    measured = spark_tasks.create_spark_task("measure_streams", "Measure keys and streams")
    measured >> validation_tasks.create_validation_task(
        "validate_bronze", "Validate bronze", validation_tasks.validate_bronze
    )


@task_group(group_display_name="Silver and gold", tooltip="Resolved state, then dbt models, on the same branch")
def silver_and_gold() -> None:
    """Resolve the state of rooms, then build the models."""
    resolved = spark_tasks.create_spark_task("resolve_state", "Resolve the state of rooms")
    resolved >> spark_tasks.create_spark_task("build_models", "Build silver and gold", task_id="dbt_build")


@task_group(group_display_name="Audit of gold", tooltip="Great Expectations validates silver and gold")
def audit_gold() -> None:
    """Validate silver and gold on the branch."""
    validation_tasks.create_validation_task("validate_gold", "Validate gold", validation_tasks.validate_gold)


write_page = task(task_display_name="Write the page")(page_tasks.write_page)
close_run = task(task_display_name="Close the run", retries=2, retry_delay=timedelta(seconds=10))(
    run_lifecycle.close_run
)
