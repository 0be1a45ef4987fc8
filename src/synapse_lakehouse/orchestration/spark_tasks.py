"""Airflow tasks that submit Spark apps, and their retry policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, Context, RetryDecision, RetryPolicy, TriggerRule

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.errors import PAUSE_PREFIX, REPORT_PREFIX
from synapse_lakehouse.iceberg.catalog.catalog import PRIVATE_FILE_OPTIONS, export_secrets
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
from synapse_lakehouse.orchestration.run_lifecycle import lake_run_id

if TYPE_CHECKING:
    from pathlib import Path

SPARK_POOL: Final = "spark_drivers"
"""Airflow's pool of Spark apps and of the tasks that open runs. It limits the memory that drivers use together, and
leaves slots of the executor to short tasks."""

COPY_SLOTS: Final = 2
"""Slots of a task that opens a run or copies Synapse's database.

They are more than half of the pool's slots, so one such task runs at a time. The tasks of open runs get free slots
first. So no run opens while an open run waits for slots. The lease of the waiting run may expire, but no other run
takes it.
"""

_PAUSE: Final = timedelta(minutes=3)
"""Most upgrades of Synapse change the schema within this time. The lake lease lasts longer: it is valid for 300 s, and
a working app renews it every 100 s, so at least 200 s remain after a failure."""

RUN_ARGUMENTS: Final = (
    "--run-id", "{{ lake_run_id(dag.dag_id, run_id) }}",
    "--start", "{{ data_interval_start.isoformat() }}",
    "--end", "{{ data_interval_end.isoformat() }}",
)  # fmt: skip
"""``Run.to_arguments()`` as templates."""


class RetryUnlessReported(RetryPolicy):
    """Retry a Spark app that crashed, but not one that reported a :class:`~synapse_lakehouse.errors.LakehouseError`."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide by the prefix of the line that the app writes before it exits."""
        lines = str(exception).splitlines()
        if any(line.startswith(REPORT_PREFIX) for line in lines):
            return RetryDecision.fail("a retry cannot correct this error")
        if any(line.startswith(PAUSE_PREFIX) for line in lines):
            return RetryDecision.retry(_PAUSE, "a retry may succeed after an upgrade of Synapse")
        return RetryDecision.default()


def create_spark_task(
    app: str,
    title: str,
    task_id: str | None = None,
    pool_slots: int = 1,
    outlets: Sequence[Asset] = (),
    pre_execute: Callable[[Context], None] | None = None,
    on_success: Callable[[Context], None] | None = None,
    overrides: Mapping[str, str] | None = None,
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS,
) -> SparkSubmitOperator:
    """Create the task that submits ``spark_apps/<app>.py`` to the cluster of the connection ``spark_default``.

    The app reads settings and passwords from the environment; its command line has no secrets.

    :param overrides: environment variables of this task, as templates; they override settings.
    """
    return SparkSubmitOperator(
        task_id=task_id or app,
        task_display_name=title,
        application=str(PROJECT_FOLDER / "spark_apps" / f"{app}.py"),
        application_args=list(RUN_ARGUMENTS),
        name=f"lakehouse {app} {{{{ run_id }}}}",
        driver_class_path="{{ spark_class_path(dag.dag_id) }}",
        conf={
            "spark.driver.memory": "{{ settings(dag.dag_id).lakehouse_driver_memory }}",
            "spark.driver.defaultJavaOptions": "{{ spark_java_options(dag.dag_id) }}",
            "spark.log.level": "{{ settings(dag.dag_id).lakehouse_log_level }}",
        }
        | PRIVATE_FILE_OPTIONS,
        retries=2,
        retry_delay=timedelta(seconds=20),
        retry_policy=RetryUnlessReported(),
        pool=SPARK_POOL,
        pool_slots=pool_slots,
        outlets=outlets,
        pre_execute=partial(_run_with_private_files, pre_execute),
        on_success_callback=on_success,
        env_vars=dict(overrides or {}),
        trigger_rule=trigger_rule,
    )


def _run_with_private_files(then: Callable[[Context], None] | None, context: Context) -> None:
    # Spark's processes inherit the umask and the environment of this process.
    os.umask(0o077)
    export_secrets(load_task_settings(context["dag"].dag_id))
    if then:
        then(context)


def spark_class_path(dag_id: str) -> str:
    """Download missing jars; return the jars of all Spark apps as the class path of the driver."""
    from synapse_lakehouse.java import class_archive

    return class_archive.get_class_path(_install_jars(dag_id))


def spark_java_options(dag_id: str) -> str:
    """Return the options of the driver's JVM."""
    from synapse_lakehouse.java import class_archive

    return class_archive.get_java_options(load_task_settings(dag_id), _install_jars(dag_id))


def _install_jars(dag_id: str) -> list[Path]:
    from synapse_lakehouse.java import jars

    return jars.install_jars(load_task_settings(dag_id))


TEMPLATE_MACROS: Final = {
    "lake_run_id": lake_run_id,
    "spark_class_path": spark_class_path,
    "spark_java_options": spark_java_options,
    "settings": load_task_settings,
}
"""User-defined macros of the DAGs, for the templates of :func:`create_spark_task`."""
