"""A look at Synapse's streams every five minutes, while it runs.

**What it does.** In one short read-only transaction it reads the position of every writer of every stream, how far each
sequence is, and which ids next to the slowest writer are complete. Together with the look before, that tells how many
ids are open and since when, which writer has not moved, and which one lost its position. `audit.stream_watch` keeps
every look; `lakehouse positions --history` shows what became of them. Where a replication tap was ever used, it
says when that landed something last, and tells somebody when it is silent. `preflight` asks what Synapse asks when it
starts: whether each sequence is as far as its positions and rows. No Spark, no lake lease, nothing is published.

**When it fails.** The log ends with the reason: the database cannot be reached or lacks a right, which
`lakehouse doctor` explains, or it is too busy to answer within seconds; then the next look may succeed. `preflight`
also fails when Synapse would refuse to start, or gives ids out twice: **do not restart Synapse** before its log,
which prints the SQL that mends it, has been read.

**Is a rerun safe?** Yes: it takes another look at the present. A look that was missed cannot be made up for.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import CronTriggerTimetable, dag, task

from synapse_lakehouse.orchestration import callbacks, stream_watch_tasks


@dag(
    dag_id="stream_watch",
    dag_display_name="Stream watch",
    description=__doc__.partition(".")[0],
    doc_md=__doc__,
    schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC"),
    start_date=datetime(2014, 1, 1, tzinfo=UTC),
    # A look is of the present.
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=5),
    on_failure_callback=callbacks.alert_on_timeout,
    is_paused_upon_creation=False,
    tags=["layer:audit", "impact:reads-source"],
    default_args={
        "owner": "lakehouse",
        "retries": 1,
        "retry_delay": timedelta(seconds=20),
        "on_failure_callback": callbacks.alert_on_dag_failure,
        "on_success_callback": callbacks.resolve_dag_incident,
    },
)
def stream_watch() -> None:
    """Wire the tasks, which do not wait for each other."""
    task(task_id="look", task_display_name="Look at the streams")(stream_watch_tasks.watch_streams)()
    task(
        task_display_name="Would Synapse start again?",
        on_failure_callback=callbacks.alert_on_task_failure,
        on_success_callback=callbacks.resolve_task_incident,
    )(stream_watch_tasks.preflight)()


stream_watch()
