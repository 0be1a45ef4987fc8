"""Room state in fewer rows: planned from the lake, approved by a person, applied to Synapse's database, verified.

**What it does.** Off unless `enabled` is set under `state_compressor` in `SYNAPSE_CONFIG`, or by
`LAKEHOUSE_COMPRESSOR_ENABLED`. Then, once every `time_between_runs`, it plans from the newest release how the rooms
with the most uncompressed state could be stored in fewer rows, which costs Synapse nothing (`gold.compression_plan`).
A person sees the numbers under *Required Actions* and approves or rejects; who has not answered when the next run is
due has rejected. `LAKEHOUSE_COMPRESSOR_APPLY=true` asks nobody. What is approved is applied beside the running Synapse
over `SYNAPSE_WRITE_DSN`, room by room in small transactions; every group is read again and compared, and a room that
does not resolve as before is put back. `audit.compression_runs` has what became of each room, as soon as it is done;
`lakehouse compress history` shows it, beside what `lakehouse compress apply` did by hand.

**When it fails.** The red task's log ends with the reason.

* `plan_compression`: no release yet, a named room that does not exist, or the database could not be asked how far rooms
  are compressed. Nothing was touched. (A setting that means nothing is shown in place of this DAG.)
* `apply`: `SYNAPSE_WRITE_DSN` is missing or its role lacks a right (`lakehouse grants --compress`), another compressor
  is at work, the database went away, or a room did not read as before and was put back: please report that one. All
  that was written is right and stays. Or a room is known not to read as before: nothing is written until it does.
* `verify`: a room is not as it should be. `audit.compression_runs` names it and its undo file, with which
  `lakehouse compress undo --repair --yes FILE` puts it back. Or an undo file is gone: bring it back and clear the task.

**Is a rerun safe?** Yes, at any time, from any task: what is stored is planned anew, rooms that are done are left
alone, and a room that was found wrong is called so until it is put back. A plan that is rejected is planned again by
the next run.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable, Param, dag, task

from synapse_lakehouse.orchestration import callbacks, compression_tasks, spark_tasks

COMPRESSOR = compression_tasks.compressor_settings()
BETWEEN_RUNS = timedelta(milliseconds=COMPRESSOR.time_between_runs)


@dag(
    dag_id="state_compression",
    dag_display_name="State compression",
    description=__doc__.partition(":")[0],
    doc_md=__doc__,
    schedule=DeltaDataIntervalTimetable(BETWEEN_RUNS) if COMPRESSOR.enabled else None,
    start_date=datetime(2014, 1, 1, tzinfo=UTC),
    # It is about the present: what a missed run would have compressed, the next one does.
    catchup=False,
    max_active_runs=1,
    # Somebody may take all the time between two runs to answer.
    dagrun_timeout=BETWEEN_RUNS + timedelta(days=1),
    on_failure_callback=callbacks.alert_on_timeout,
    # It writes to Synapse's database: somebody has to want that.
    is_paused_upon_creation=True,
    tags=["layer:gold", "layer:audit", "impact:reads-source", "impact:writes-source"],
    user_defined_macros=spark_tasks.TEMPLATE_MACROS,
    params={
        "rooms": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Rooms",
            description="Rooms to compress, by their ids; empty: as the settings say.",
        ),
        "number_of_rooms": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Number of rooms",
            description="So many rooms, those with the most uncompressed state; empty: as the settings say.",
        ),
        "strategy": Param(
            None,
            type=["null", "string"],
            enum=[None, "levels", "best"],
            title="Strategy",
            description="levels, as Synapse's own compressor, or best, fewest rows; empty: as the settings say.",
        ),
        "default_levels": Param(
            None,
            type=["null", "string"],
            pattern=r"^[1-9][0-9]*(,[1-9][0-9]*)*$",
            title="Levels",
            description="Sizes of new levels, such as 100,50,25; empty: as the settings say.",
        ),
        "max_chain": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Longest chain",
            description="For best: most groups to read for the state of one; empty: as the settings say.",
        ),
    },
    default_args={"owner": "lakehouse", "retries": 0, "on_failure_callback": callbacks.alert_on_dag_failure},
)
def state_compression() -> None:
    """Wire the run: plan, ask, apply, verify."""
    planned = spark_tasks.create_spark_task(
        "plan_compression",
        "Plan from the newest release",
        pre_execute=compression_tasks.skip_if_disabled,
        overrides={
            f"LAKEHOUSE_COMPRESSOR_{name.upper()}": _setting(name)
            for name in ("rooms", "number_of_rooms", "strategy", "default_levels", "max_chain")
        },
    )
    asked = task(task_display_name="Show the plan", task_id="show_plan")(compression_tasks.describe_plan_for_approval)()
    approved = compression_tasks.CompressionApprovalOperator(
        task_id="approve",
        task_display_name="Approve the plan",
        subject="Compress room state in Synapse's database?",
        body="{{ ti.xcom_pull(task_ids='show_plan') }}",
        defaults=compression_tasks.CompressionApprovalOperator.REJECT,
        response_timeout=BETWEEN_RUNS,
    )
    applied = task(
        task_display_name="Apply it to Synapse's database",
        task_id="apply",
        retries=2,
        retry_delay=timedelta(minutes=1),
    )(compression_tasks.apply_compression)()
    verified = task(
        task_display_name="Verify every room", task_id="verify", on_success_callback=callbacks.resolve_dag_incident
    )(compression_tasks.verify_compression)()
    planned >> asked >> approved >> applied >> verified


def _setting(param: str) -> str:
    """Template of the setting ``LAKEHOUSE_COMPRESSOR_<param>``, unless the run was started with another value."""
    as_set = f"settings().lakehouse_compressor_{param} or ''"
    if param == "rooms":
        # Whoever says how many wants the largest, not those that are configured.
        return f"{{{{ params.rooms | tojson if params.rooms or params.number_of_rooms else {as_set} }}}}"
    return f"{{{{ params.{param} if params.{param} else {as_set} }}}}"


state_compression()
