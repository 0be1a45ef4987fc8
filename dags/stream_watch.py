"""Check the streams of the running Synapse every five minutes.

**What it does.** One short read-only transaction reads the position of every writer of every stream, the last value of
each sequence, and the rows beyond the slowest writer. A comparison with the previous sample shows how many IDs are in
flight and since when, which writer does not advance, and which writer lost its position. `audit.stream_watch` contains
every sample; `lakehouse positions --history` shows them. If a replication tap was ever used, the DAG also logs when the
tap last recorded something, and sends an alert when the tap is silent. For each new report of an event, a room or a
user, the DAG sends an alert with the IDs. `preflight` repeats a check that Synapse runs when it starts: each sequence
must match its positions and rows. The DAG uses no Spark and no lake lease, and publishes nothing.

**When it fails.** The log ends with the reason: the database cannot be reached, or a privilege is missing
(`lakehouse doctor` explains both). Or the database is too busy to answer within seconds; then the next sample may
succeed. `preflight` also fails when Synapse would refuse to start or would assign IDs twice. **Do not restart Synapse**
before you have read the log of `preflight`: it contains the SQL that repairs the sequences.

**Is a rerun safe?** Yes: it samples the present again. A missed sample cannot be taken later.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronTriggerTimetable, WeightRule, task

from synapse_lakehouse.orchestration import callbacks, stream_watch_tasks
from synapse_lakehouse.orchestration.dag_homeservers import DagHomeserver, list_dag_homeservers


def create_dag(homeserver: DagHomeserver) -> DAG:
    """Return the DAG of ``homeserver``."""
    with DAG(
        dag_id=homeserver.get_dag_id("stream_watch"),
        dag_display_name=homeserver.get_title("Stream watch"),
        description=__doc__.partition(".")[0],
        doc_md=__doc__,
        schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC"),
        start_date=datetime(2014, 1, 1, tzinfo=UTC),
        # A sample shows the present only.
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
            # The tasks take seconds, and their samples cannot be taken later.
            "priority_weight": 1000,
            "weight_rule": WeightRule.ABSOLUTE,
            "on_failure_callback": callbacks.alert_on_dag_failure,
            "on_success_callback": callbacks.resolve_dag_incident,
        },
    ) as dag:
        stream_watch()
    return dag


def stream_watch() -> None:
    """Wire the tasks, which do not wait for each other."""
    task(task_id="look", task_display_name="Sample the streams")(stream_watch_tasks.watch_streams)()
    task(
        task_display_name="Would Synapse start again?",
        on_failure_callback=callbacks.alert_on_task_failure,
        on_success_callback=callbacks.resolve_task_incident,
    )(stream_watch_tasks.preflight)()


for each in list_dag_homeservers():
    create_dag(each)
