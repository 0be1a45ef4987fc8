"""Copy a Synapse homeserver's database, validate it, derive tables and publish a release.

**What it does.** All catalogued tables are copied from one PostgreSQL snapshot onto an Iceberg branch. The stream
positions are measured, and Great Expectations validates bronze. Room state is resolved, and dbt builds silver and gold
on the same branch. After the validation of gold, all tables are published at once as a new release. Checks and
statistics describe the run's data interval. The copy always contains the present state.

**When it fails.** The log of the red task ends with the reason.

* `open_run`: the interval has not ended; a setting is invalid; the source cannot be reached, has no supported Synapse
  schema, or a privilege is missing; the lake belongs to another homeserver; or another run held the lake lease for too
  long. Nothing was changed.
* `validate_bronze`, `validate_gold`: a validation failed. There is no retry, because the data would not change. The log
  lists the failed checks and their page of the Data Docs.
* A Spark app: a reported error (no disk space, no connection, a lost lease) fails the task at once. Airflow retries a
  crashed app twice. If a copy failed because an upgrade of Synapse alters a table, Airflow retries it after three
  minutes.

After any failure nothing is published: readers still see the previous release. The run's branch stays for inspection;
`lakehouse branches` lists and drops such branches.

**Is a rerun safe?** Yes, for any interval, in any order, and any number of times. If two runs start at once, the second
waits for the lake lease. Clear the whole run, or `open_run` and all later tasks. A task that is cleared alone fails,
because the run has released its lease.

**Backfill.** While `make ui` runs, run
`uv run lakehouse airflow backfill create --dag-id lakehouse --from-date 2026-11-10 --to-date 2026-11-12`, or press
Trigger in the browser. The runs of a backfill wait for each other, because only one run at a time may change the
tables.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task, task_group

from synapse_lakehouse.orchestration import (
    assets,
    callbacks,
    metrics_tasks,
    run_lifecycle,
    spark_tasks,
    task_groups,
    validation_tasks,
)
from synapse_lakehouse.orchestration.dag_homeservers import DagHomeserver, list_dag_homeservers

PARAMS: Final[dict[str, Any]] = {
    "rehearse": Param(
        False,
        type="boolean",
        title="Rehearse",
        description="Copy, build and validate everything without publishing; the branch stays for inspection.",
    ),
} | validation_tasks.FAIL_ON_WARNINGS


def create_dag(homeserver: DagHomeserver) -> DAG:
    """Return the DAG of ``homeserver``."""
    schedule = homeserver.settings.schedule
    with DAG(
        dag_id=homeserver.get_dag_id("lakehouse"),
        dag_display_name=homeserver.get_title("Synapse lakehouse"),
        description=__doc__.partition(".")[0],
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable(schedule.expression, timezone=schedule.zone.key),
        start_date=datetime(2014, 1, 1, tzinfo=UTC),
        # Every run updates bronze to the present, so an outage loses no rows. Catch-up runs would copy the same rows
        # again. To get checks and statistics for the skipped days, run a backfill.
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=20),
        on_failure_callback=callbacks.alert_on_timeout,
        # The DAG only reads Synapse's database, and publishes only validated content.
        is_paused_upon_creation=False,
        tags=["layer:bronze", "layer:silver", "layer:gold", "impact:publishes", "impact:reads-source"],
        user_defined_macros=spark_tasks.TEMPLATE_MACROS,
        params=PARAMS,
        default_args=task_groups.DEFAULT_ARGUMENTS,
    ) as dag:
        lakehouse(homeserver)
    return dag


def lakehouse(homeserver: DagHomeserver) -> None:
    """Wire the run: bronze, validation, silver and gold, validation, publication."""

    @task_group(group_display_name="Bronze", tooltip="Copy of one PostgreSQL snapshot on the run's branch")
    def bronze() -> None:
        opened = task(**task_groups.OPEN_RUN)(run_lifecycle.open_run)
        opened() >> spark_tasks.create_spark_task(
            "snapshot_tables", "Copy the tables", pool_slots=spark_tasks.COPY_SLOTS
        )

    @task_group(group_display_name="Publish", tooltip="All tables at once, then the release row")
    def publish() -> None:
        spark_tasks.create_spark_task(
            "publish_release",
            "Publish the release",
            pre_execute=run_lifecycle.skip_if_rehearsal,
            on_success=metrics_tasks.complete_release,
            outlets=assets.published_assets(homeserver.name),
        )

    (
        bronze()
        >> task_groups.audit_bronze()
        >> task_groups.silver_and_gold()
        >> task_groups.audit_gold()
        >> publish()
        >> task_groups.write_page()
        >> task_groups.close_run().as_teardown()
    )


for each in list_dag_homeservers():
    create_dag(each)
