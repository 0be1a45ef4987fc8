"""Compare the copy with Synapse's database, and maintain the lake's files: compaction, expiry, erasure.

**What it does.** A run copies, validates, builds and publishes as a run of the DAG `lakehouse` does. It measures sizes
only if no run measured them in the last 20 hours. It does not check whether Synapse can start again. After the copy it
also compares row counts and hashes of key ranges with the source, in the same PostgreSQL snapshot, and reads differing
ranges again. `LAKEHOUSE_PARITY_SECONDS` limits the load on Synapse's database. Each run begins with the slices of
tables that were not compared for the longest time. For at most `LAKEHOUSE_INDEX_CHECK_SECONDS`, the run compares
entries of the source's indexes with the copy. Then the run maintains the lake's files, even if an earlier task failed.
It rewrites files with deleted content or many deleted rows, merges small files, expires releases older than
`LAKEHOUSE_ERASURE_DAYS` with their snapshots, tags, branches and files, and deletes orphan files. Content that was
purged or redacted in Synapse is therefore erased from the warehouse after `LAKEHOUSE_ERASURE_DAYS` days. `lakehouse
prove-erased` verifies the erasure.

**When it fails.** The log of the failed task ends with the reason.

* `open_run`: another run held the lake lease for too long, or the lake belongs to another homeserver. The run changed
  nothing.
* `reconcile_bronze` to `publish_release`: as in the DAG `lakehouse`. Nothing is published, and readers see the previous
  release. The maintenance of files runs nevertheless.
* `maintain_lake`: a table could not be compacted, because a file is damaged or compaction would have changed the
  content; a table's folder has files of another lake, or a file is missing there; or the disk is full. Other tables are
  maintained, and completed work stays in effect.

A differing range does not fail the run. The run repairs the range, logs a warning, and adds a row to `audit.repairs`.

**Is a rerun safe?** Yes, at any time and any number of times. Runs of this DAG and of the DAG `lakehouse` wait for each
other. Clear the whole run. A task that is cleared alone fails, because the run has released its lease.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, TriggerRule, task, task_group

from synapse_lakehouse.config.limits import MAX_DAYS, MAX_SECONDS
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
    "parity_seconds": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=MAX_SECONDS,
        title="Seconds on the source",
        description="Maximum seconds that the comparison may use Synapse's database; empty: as configured.",
    ),
    "erasure_days": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        maximum=MAX_DAYS,
        title="Days to retain releases",
        description="Delete releases older than this many days. 0: all except the latest. Empty: as configured.",
    ),
} | validation_tasks.FAIL_ON_WARNINGS


def create_dag(homeserver: DagHomeserver) -> DAG:
    """Return the DAG of ``homeserver``."""
    with DAG(
        dag_id=homeserver.get_dag_id("lake_maintenance"),
        dag_display_name=homeserver.get_title("Lake maintenance"),
        description=__doc__.partition(".")[0],
        doc_md=__doc__,
        # The daily run of the DAG lakehouse starts at midnight.
        schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
        start_date=datetime(2014, 1, 1, tzinfo=UTC),
        # The next run does the work of a missed run.
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=20),
        on_failure_callback=callbacks.alert_on_timeout,
        # Without this DAG, deleted rows would stay in files forever.
        is_paused_upon_creation=False,
        tags=["layer:bronze", "layer:silver", "layer:gold", "impact:publishes", "impact:reads-source"],
        user_defined_macros=spark_tasks.TEMPLATE_MACROS,
        params=PARAMS,
        default_args=task_groups.DEFAULT_ARGUMENTS,
    ) as dag:
        lake_maintenance(homeserver)
    return dag


def lake_maintenance(homeserver: DagHomeserver) -> None:
    """Wire the run: lease, copy and comparison, validation, models, publication, file maintenance, report."""

    @task_group(group_display_name="Bronze", tooltip="Copy of one PostgreSQL snapshot, compared with the source")
    def bronze() -> None:
        spark_tasks.create_spark_task(
            "reconcile_bronze",
            "Copy and compare the tables",
            pool_slots=spark_tasks.COPY_SLOTS,
            overrides={"LAKEHOUSE_PARITY_SECONDS": _setting("parity_seconds")},
        )

    opened = task(task_id="open_run", **task_groups.OPEN_RUN)(run_lifecycle.open_maintenance)()
    published = spark_tasks.create_spark_task(
        "publish_release", "Publish the release", outlets=assets.published_assets(homeserver.name)
    )
    # Erasure must work even if the source is down or the copy fails validation. Erasure needs only the lease.
    maintained = spark_tasks.create_spark_task(
        "maintain_lake",
        "Maintain the lake's files",
        overrides={"LAKEHOUSE_ERASURE_DAYS": _setting("erasure_days")},
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
    )
    # The report depends on publication and maintenance, so that the run fails if either failed.
    report = task(task_display_name="Report", on_success_callback=metrics_tasks.complete_release)(
        run_lifecycle.report_reconciliation
    )()

    (
        opened
        >> bronze()
        >> task_groups.audit_bronze()
        >> task_groups.silver_and_gold()
        >> task_groups.audit_gold()
        >> published
    )
    [opened, published] >> maintained
    [published, maintained] >> report >> task_groups.write_page() >> task_groups.close_run().as_teardown()


def _setting(param: str) -> str:
    """Return a template of the run's parameter, or of the setting ``LAKEHOUSE_<param>`` if the parameter is None."""
    return f"{{{{ settings(dag.dag_id).lakehouse_{param} if params.{param} is none else params.{param} }}}}"


for each in list_dag_homeservers():
    create_dag(each)
