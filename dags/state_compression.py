"""Compress room state: plan from the lake, ask for approval, apply to Synapse's database, verify.

**What it does.** The DAG is disabled by default. `enabled` under `state_compressor` in `SYNAPSE_CONFIG`, or
`LAKEHOUSE_COMPRESSOR_ENABLED=true`, enables it. Every `time_between_runs`, it plans how to store room state in fewer
rows, for the rooms with the most uncompressed state. It reads the latest release, so the plan (`gold.compression_plan`)
puts no load on Synapse. An operator approves or rejects it under *Required Actions*. If no operator approves a plan,
the next scheduled run rejects it. `LAKEHOUSE_COMPRESSOR_APPLY=true` skips the approval step. An approved plan is
applied over `SYNAPSE_WRITE_DSN` while Synapse is running, room by room, in small transactions. Every state group is
read again and compared; a room with a changed state is restored. `audit.compression_runs` records the outcome of each
room as soon as it is known. `lakehouse compress history` shows these outcomes, and those of `lakehouse compress apply`.

**When it fails.** The log of the red task ends with the reason.

* `plan_compression`: there is no release yet, a named room does not exist, or the saved progress cannot be read from
  the database. Nothing was changed. (If a setting is invalid, Airflow shows an import error of this DAG. With several
  homeservers, only the runs of the homeserver with this setting fail.)
* `apply`: `SYNAPSE_WRITE_DSN` is not set, its role lacks a privilege (`lakehouse grants --compress`), another
  compressor is running, or the connection was lost. Or a room's state changed: the room was restored, and you should
  report this bug. All other changes are correct and stay. If a room is recorded as faulty, nothing is written until
  that room is repaired.
* `verify`: a room has faults. `audit.compression_runs` names the room and its undo file;
  `lakehouse compress undo --repair --yes FILE` restores the room. Or an undo file is missing: bring it back and
  clear the task.

**Is a rerun safe?** Yes, at any time, from any task. The plan starts from the present state groups, and finished rooms
are skipped. A faulty room stays recorded until it is repaired. The next run plans the rooms of a rejected plan again.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.sdk import DAG, DeltaDataIntervalTimetable, Param, task

from synapse_lakehouse.compressor.settings import CompressorSettings, load_compressor_settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.orchestration import callbacks, compression_tasks, spark_tasks
from synapse_lakehouse.orchestration.dag_homeservers import DagHomeserver, list_dag_homeservers

PARAMS: Final[dict[str, Any]] = {
    "rooms": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Rooms",
        description="IDs of the rooms to compress; empty: as in the settings.",
    ),
    "number_of_rooms": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Number of rooms",
        description="Number of rooms to compress, largest uncompressed state first; empty: as in the settings.",
    ),
    "strategy": Param(
        None,
        type=["null", "string"],
        enum=[None, "levels", "best"],
        title="Strategy",
        description="levels (as Synapse's own compressor) or best (the fewest rows); empty: as in the settings.",
    ),
    "default_levels": Param(
        None,
        type=["null", "string"],
        pattern=r"^[1-9][0-9]*(,[1-9][0-9]*)*$",
        title="Levels",
        description="Sizes of new levels, such as 100,50,25; empty: as in the settings.",
    ),
    "max_chain": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Longest chain",
        description="For best: maximum number of state groups in a chain; empty: as in the settings.",
    ),
}


def create_dag(homeserver: DagHomeserver) -> DAG:
    """Return the DAG of ``homeserver``."""
    compressor = _load_settings(homeserver)
    between_runs = timedelta(milliseconds=compressor.time_between_runs)
    with DAG(
        dag_id=homeserver.get_dag_id("state_compression"),
        dag_display_name=homeserver.get_title("State compression"),
        description=__doc__.partition(":")[0],
        doc_md=__doc__,
        schedule=DeltaDataIntervalTimetable(between_runs) if compressor.enabled else None,
        start_date=datetime(2014, 1, 1, tzinfo=UTC),
        # A run compresses the present state, so a missed run needs no replacement.
        catchup=False,
        max_active_runs=1,
        # An operator may answer until the next scheduled run.
        dagrun_timeout=between_runs + timedelta(days=1),
        on_failure_callback=callbacks.alert_on_timeout,
        # The DAG writes to Synapse's database, so an operator must enable it.
        is_paused_upon_creation=True,
        tags=["layer:gold", "layer:audit", "impact:reads-source", "impact:writes-source"],
        user_defined_macros=spark_tasks.TEMPLATE_MACROS,
        params=PARAMS,
        default_args={"owner": "lakehouse", "retries": 0, "on_failure_callback": callbacks.alert_on_dag_failure},
    ) as dag:
        state_compression(between_runs)
    return dag


def _load_settings(homeserver: DagHomeserver) -> CompressorSettings:
    """Return the compressor's settings. With several homeservers, wrong settings fail the homeserver's runs only."""
    try:
        return load_compressor_settings(homeserver.settings)
    except LakehouseError:
        if not homeserver.name:
            raise
        return CompressorSettings(enabled=True)


def state_compression(between_runs: timedelta) -> None:
    """Wire the run: plan, approval, apply, verify."""
    planned = spark_tasks.create_spark_task(
        "plan_compression",
        "Plan from the newest release",
        pre_execute=compression_tasks.skip_if_disabled,
        overrides={
            f"LAKEHOUSE_COMPRESSOR_{name.upper()}": _setting(name)
            for name in ("rooms", "number_of_rooms", "strategy", "default_levels", "max_chain")
        },
    )
    show_plan = task(task_display_name="Show the plan", task_id="show_plan")(
        compression_tasks.describe_plan_for_approval
    )()
    approved = compression_tasks.CompressionApprovalOperator(
        task_id="approve",
        task_display_name="Approve the plan",
        subject="Compress room state in Synapse's database?",
        body="{{ ti.xcom_pull(task_ids='show_plan') }}",
        defaults=compression_tasks.CompressionApprovalOperator.REJECT,
        response_timeout=between_runs,
    )
    applied = task(
        task_display_name="Apply the plan to Synapse's database",
        task_id="apply",
        retries=2,
        retry_delay=timedelta(minutes=1),
    )(compression_tasks.apply_compression)()
    verified = task(
        task_display_name="Verify every room", task_id="verify", on_success_callback=callbacks.resolve_dag_incident
    )(compression_tasks.verify_compression)()
    planned >> show_plan >> approved >> applied >> verified


def _setting(param: str) -> str:
    """Return a template of the run's parameter, or of ``LAKEHOUSE_COMPRESSOR_<param>`` if the parameter is empty."""
    as_set = f"settings(dag.dag_id).lakehouse_compressor_{param} or ''"
    if param == "rooms":
        # If the run has a number of rooms, the configured room IDs do not apply.
        return f"{{{{ params.rooms | tojson if params.rooms or params.number_of_rooms else {as_set} }}}}"
    return f"{{{{ params.{param} if params.{param} else {as_set} }}}}"


for each in list_dag_homeservers():
    create_dag(each)
