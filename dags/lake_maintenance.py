"""The copy proven against Synapse's database, and the lake's files looked after: compaction, expiry, erasure.

**What it does.** A run like that of the DAG `lakehouse`, with more: after copying, rows and hashes of key ranges are
compared with the source inside the same snapshot, and ranges that differ are read again. `LAKEHOUSE_PARITY_SECONDS`
bounds what that costs Synapse's database; slices of tables take turns, the one compared longest ago first. Whatever
became of that, the lake's files are then looked after: rows that are only marked as deleted lose their bytes, small
files are merged, releases older than `LAKEHOUSE_ERASURE_DAYS` are given up with their snapshots, tags, branches and
files, and files that nothing refers to are swept. So what was purged or redacted in Synapse is gone from the warehouse
that many days later; `lakehouse prove-erased` shows it.

**When it fails.** The red task's log ends with the reason.

* `open_run`: another run kept the lake lease for too long, or the lake is another homeserver's. Nothing was touched.
* `reconcile_bronze` to `publish_release`: as in the DAG `lakehouse`. Nothing is published, readers see the release
  before; the lake's files are looked after all the same.
* `maintain_lake`: a table could not be compacted, as a file of it is damaged or its content would have changed; all
  else was looked after. Or the disk is full. What was done holds.

A range that differed fails nothing: it was mended, the report warns of it, and `audit.repairs` has it.

**Is a rerun safe?** Yes, at any time, any number of times, also beside runs of the DAG `lakehouse`: they wait for each
other. Clear the whole run; a task cleared alone refuses to work, because the run gave its lease back.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import CronDataIntervalTimetable, Param, TriggerRule, dag, task, task_group

from synapse_lakehouse.config.settings import MAX_DAYS, MAX_SECONDS
from synapse_lakehouse.orchestration import assets, callbacks, run_lifecycle, spark_tasks, validation_tasks

# One slot: Synapse's database never serves two snapshots at once, whichever DAGs want one.
SOURCE_POOL = "synapse_source"


@dag(
    dag_id="lake_maintenance",
    dag_display_name="Lake maintenance",
    description=__doc__.partition(".")[0],
    doc_md=__doc__,
    # Away from midnight, when the day's run starts.
    schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2014, 1, 1, tzinfo=UTC),
    # It is about the present: what a missed run would have done, the next one does.
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=20),
    on_failure_callback=callbacks.alert_on_timeout,
    # Without it deleted rows would stay in files for ever.
    is_paused_upon_creation=False,
    tags=["layer:bronze", "layer:silver", "layer:gold", "impact:publishes", "impact:reads-source"],
    user_defined_macros=spark_tasks.TEMPLATE_MACROS,
    params={
        "parity_seconds": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=MAX_SECONDS,
            title="Seconds on the source",
            description="Most seconds that Synapse's database may spend on being compared; empty: as the setting says.",
        ),
        "erasure_days": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            maximum=MAX_DAYS,
            title="Days that releases stay",
            description="Give up releases older than so many days, 0: all but the latest; empty: as the setting says.",
        ),
        "fail_on_warnings": Param(
            False,
            type="boolean",
            title="Fail on warnings",
            description="Let a check that would only warn, such as a writer without a position, fail the audit.",
        ),
    },
    default_args={"owner": "lakehouse", "retries": 0, "on_failure_callback": callbacks.alert_on_dag_failure},
)
def lake_maintenance() -> None:
    """Wire the run: lease, proven copy, audits and models, publishing; then the lake's files; the report; the end."""

    @task_group(group_display_name="Bronze", tooltip="One PostgreSQL snapshot: copied, and compared with the copy")
    def bronze() -> None:
        spark_tasks.create_spark_task(
            "reconcile_bronze",
            "Copy and compare the tables",
            pool=SOURCE_POOL,
            overrides={"LAKEHOUSE_PARITY_SECONDS": _setting("parity_seconds")},
        )

    @task_group(group_display_name="Audit of bronze", tooltip="Spark measures the branch, Great Expectations judges it")
    def audit_bronze() -> None:
        measured = spark_tasks.create_spark_task("measure_streams", "Measure keys and streams")
        measured >> validation_tasks.create_validation_task(
            "judge_bronze", "Judge bronze", validation_tasks.validate_bronze
        )

    @task_group(group_display_name="Silver and gold", tooltip="dbt derives on the same branch")
    def silver_and_gold() -> None:
        resolved = spark_tasks.create_spark_task("resolve_state", "Resolve the state of rooms")
        resolved >> spark_tasks.create_spark_task("build_models", "Build silver and gold", task_id="dbt_build")

    @task_group(group_display_name="Audit of gold", tooltip="Great Expectations judges what readers will see")
    def audit_gold() -> None:
        validation_tasks.create_validation_task("judge_gold", "Judge gold", validation_tasks.validate_gold)

    opened = task(task_display_name="Open the run", task_id="open_run", retries=3, retry_delay=timedelta(minutes=1))(
        run_lifecycle.open_maintenance
    )()
    published = spark_tasks.create_spark_task(
        "publish_release", "Publish the release", outlets=assets.published_assets()
    )
    # What was erased must go even while the source is away or its copy fails an audit: all it takes is the lease.
    maintained = spark_tasks.create_spark_task(
        "maintain_lake",
        "Look after the lake's files",
        overrides={"LAKEHOUSE_ERASURE_DAYS": _setting("erasure_days")},
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
    )
    # Needs both, so that a run in which either failed is red.
    report = task(task_display_name="Report", on_success_callback=callbacks.resolve_dag_incident)(
        run_lifecycle.report_maintenance
    )()
    close = task(task_display_name="Close the run", retries=2, retry_delay=timedelta(seconds=10))(
        run_lifecycle.close_run
    )

    opened >> bronze() >> audit_bronze() >> silver_and_gold() >> audit_gold() >> published
    [opened, published] >> maintained
    [published, maintained] >> report >> close().as_teardown()


def _setting(param: str) -> str:
    """Template of the setting ``LAKEHOUSE_<param>``, unless the run was started with another value."""
    return f"{{{{ settings().lakehouse_{param} if params.{param} is none else params.{param} }}}}"


lake_maintenance()
