"""Run dbt on the run's branch: parse the project, build the models, run the tests, generate the documentation."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from dbt.artifacts.schemas.run import RunExecutionResult
from dbt.cli.main import dbtRunner, dbtRunnerResult
from dbt.contracts.graph.manifest import Manifest
from dbt.contracts.graph.nodes import ModelNode
from dbt_common.events.base_types import EventMsg
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.acknowledged_rooms import parse_acknowledged_rooms
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.dbt_build.change_views import register_changes
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.events import event_udfs
from synapse_lakehouse.iceberg.spark.session import log_errors_only
from synapse_lakehouse.iceberg.write import branches, input_fingerprint
from synapse_lakehouse.room_state import integrity_checks, resolve, retention
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams.gaps import gap_udfs

_FAILED: Final = frozenset({"error", "fail", "runtime error", "partial success"})
_RUNTIME_VARIABLES: Final = frozenset({"as_of", "built_from", "changes_are_known"})
"""Variables of dbt that do not affect the project's graph."""
_CAUSES: Final = ", ".join(
    f"('{check.name}', '{cause}')" for check in integrity_checks.INTEGRITY_CHECKS for cause in check.follows
)
_STATE_TABLES: Final = ", ".join(f"'{table}'" for table in resolve.SOURCE_TABLES)
# A finding of a damaged index explains other findings of this index in all rooms. If the index is on a table of room
# state, the finding also explains findings of other checks in the same room. An acknowledged finding explains other
# findings, although its severity is info.
_FINDINGS: Final = f"""
with findings as (
    select
        check_name, room_id, subject, severity <> 'info' as is_serious,
        if(startswith(check_name, 'index_'), split_part(subject, ' ', 1), room_id) as place
    from gold.state_integrity
),
state_indexes as (
    select distinct index_name from silver.index_faults where 'bronze.' || table_name in ({_STATE_TABLES})
),
previous as (select check_name, room_id, subject from gold.state_integrity {{previous}}),
explained as (
    select distinct
        causes.check_name,
        explode(array(
            findings.place,
            if(state_indexes.index_name is not null or findings.place = findings.room_id, findings.room_id, null)
        )) as place
    from findings
    inner join (values {_CAUSES}) as causes(check_name, cause) on findings.check_name = causes.cause
    left join state_indexes on findings.place = state_indexes.index_name
    where findings.is_serious or hex(findings.room_id) in ({{acknowledged}})
)
select
    findings.check_name,
    count(*) as findings,
    count_if(is_serious) as serious,
    count(distinct if(is_serious, findings.room_id, null)) as rooms,
    count_if(is_serious and previous.subject is null) as new_findings,
    count_if(is_serious and explained.check_name is null) as unexplained
from findings
left join previous
    on findings.check_name = previous.check_name
    and findings.room_id <=> previous.room_id
    and findings.subject = previous.subject
left join explained on findings.check_name = explained.check_name and findings.place = explained.place
group by findings.check_name
"""  # noqa: S608 - names of checks


def build_project(app: SparkApp) -> None:
    """Build every model, run every data test, and generate the documentation.

    :raises LakehouseError: when a model or a test failed."""
    home = app.settings.lake_folder / "dbt"
    (home / "target" / "run_results.json").unlink(missing_ok=True)
    # dbt copies variables with this prefix into its artifacts, so that the artifacts identify the run.
    os.environ["DBT_ENV_CUSTOM_ENV_RUN_ID"] = app.run.run_id

    def progress(event: EventMsg) -> None:
        node = event.data.node_info if event.info.name == "NodeFinished" else None
        if node and node.resource_type == "model" and node.materialized != "ephemeral":
            relation, seconds = node.node_relation, event.data.run_result.execution_time
            app.report_progress(
                f"{relation.schema}.{relation.alias}: {event.data.run_result.status} in {seconds:.1f} s"
            )

    built = run_dbt(app, ["build", "--exclude-resource-type", "unit_test"], progress)
    if not built.done.success:
        app.spark.stop()
        raise LakehouseError(describe_failure(built.done))
    store.append_audit_rows(app.catalog, "audit.views", build_view_rows(built.done), app.run)
    store.append_audit_rows(app.catalog, "audit.integrity", count_integrity_findings(app), app.run)
    dbtRunner(built.project).invoke(
        ["docs", "generate", "--static", "--no-compile", *get_dbt_arguments(app, built.variables)]
    )


class DbtResult(NamedTuple):
    """Result of a dbt invocation, its project and its variables."""

    done: dbtRunnerResult
    project: Manifest | None
    variables: Mapping[str, Any]


def run_dbt(app: SparkApp, command: Iterable[str], *callbacks: Callable[[EventMsg], None]) -> DbtResult:
    """Run a dbt command that builds models."""
    variables = get_dbt_variables(app)
    with ThreadPoolExecutor(1) as pool:
        # dbt parses the project in another thread, while Spark starts in this thread.
        parsing = pool.submit(parse_project, app, variables)
        prepare_session(app.spark)
        project = parsing.result()
    if project:
        variables["changes_are_known"] = register_changes(app.spark, app.catalog, app.run.branch, project)
    result = dbtRunner(project, [*callbacks]).invoke([*command, *get_dbt_arguments(app, variables)])
    return DbtResult(result, project, variables)


def parse_project(app: SparkApp, variables: Mapping[str, Any]) -> Manifest | None:
    """Return the parsed project; None if dbt cannot parse it. In this case, the build reports the error.

    Variables of the run are omitted, so that dbt reuses its partial parse of the previous run.
    """
    stable = {name: value for name, value in variables.items() if name not in _RUNTIME_VARIABLES}
    result = dbtRunner().invoke(["parse", *get_dbt_arguments(app, stable)])
    return result.result if isinstance(result.result, Manifest) else None


def get_dbt_arguments(app: SparkApp, variables: Mapping[str, Any]) -> list[str]:
    """Return the arguments that all dbt commands need: variables, and the folders of the project and its artifacts."""
    return [*_folders(app.settings.lake_folder / "dbt"), "--vars", json.dumps(variables)]


def build_view_rows(result: dbtRunnerResult) -> list[dict[str, Any]]:
    """Return the rows of ``audit.views``: the views that are created when the run is published."""
    results = result.result.results if isinstance(result.result, RunExecutionResult) else []
    models = [entry.node for entry in results if isinstance(entry.node, ModelNode)]
    return [
        {"view_name": f"{model.schema}.{model.alias}", "sql": model.compiled_code, "tried_at": datetime.now(UTC)}
        for model in models
        if model.config.materialized == "view"
    ]


def count_integrity_findings(app: SparkApp) -> list[dict[str, Any]]:
    """Return the rows of ``audit.integrity``: one row for each check, even if it has no findings."""
    released = "main" in app.catalog.load_table("gold.state_integrity").refs()
    rooms = parse_acknowledged_rooms(app.settings.lakehouse_acknowledged_rooms)
    counted = app.spark.sql(
        _FINDINGS.format(
            previous="version as of 'main'" if released else "where false",
            acknowledged=", ".join(["null", *(f"'{room['room']}'".upper() for room in rooms)]),
        )
    )
    rows = {row["check_name"]: row.asDict() for row in counted.collect()}
    none = dict.fromkeys(("findings", "serious", "rooms", "new_findings", "unexplained"), 0)
    return [
        {"check_name": check.name, "counted_at": datetime.now(UTC)} | none | rows.get(check.name, {})
        for check in integrity_checks.INTEGRITY_CHECKS
    ]


def get_dbt_variables(app: SparkApp) -> dict[str, Any]:
    """Return the variables of the models."""
    snapshot_times = [row["taken_at"] for row in store.read_run_rows(app.catalog, "audit.snapshots", app.run.run_id)]
    as_of = app.settings.lakehouse_as_of or max(snapshot_times, default=app.run.end)
    names = branches.list_run_tables(app.catalog)
    with ThreadPoolExecutor(4) as pool:
        fingerprints = pool.map(
            lambda name: input_fingerprint.read_fingerprint(app.catalog, name, app.run.branch), names
        )
    return {
        "server_name": app.settings.synapse_server_name,
        "built_from": dict(zip(names, fingerprints, strict=True)),
        "rules_of_events": event_udfs.RULES_FINGERPRINT,
        "acknowledged_rooms": parse_acknowledged_rooms(app.settings.lakehouse_acknowledged_rooms),
        "feed_length": app.settings.lakehouse_feed_length,
        "recent_rooms_per_user": app.settings.lakehouse_recent_rooms,
        "recent_events_per_room": app.settings.lakehouse_recent_events,
    } | retention.read_retention(app.settings).variables(as_of)


def describe_failure(result: dbtRunnerResult) -> str:
    """Return the message for a failed build: the failed models and tests, and the consequence."""
    if result.exception:
        return f"dbt could not start the build of the models, so nothing is published: {result.exception}"
    results = result.result.results if isinstance(result.result, RunExecutionResult) else []
    failed = [
        f"  {entry.node.resource_type} {entry.node.name}: "
        + (f"{entry.failures} rows violate it" if entry.failures else " ".join((entry.message or "").split())[:500])
        for entry in results
        if entry.status in _FAILED
    ]
    return "\n".join(
        [
            "dbt models or data tests failed, so nothing is published, and readers see the previous release.",
            *failed,
            "The built tables stay on the run's branch. For details, see dbt's log above and "
            "LAKEHOUSE_HOME/dbt/logs/dbt.log.",
        ]
    )


def _folders(home: Path) -> list[str]:
    project = str(PROJECT_FOLDER / "dbt")
    targets = ["--target-path", str(home / "target"), "--log-path", str(home / "logs")]
    return ["--project-dir", project, "--profiles-dir", project, *targets]


def prepare_session(spark: SparkSession) -> None:
    """Prepare a session for dbt and the models."""
    event_udfs.register(spark)
    gap_udfs.register(spark)
    # With constraint propagation, Spark derives constraints for all aliases of a column, which exhausts time and
    # memory.
    spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
    # The warnings of this class are noise: dbt requests the session for every statement, and reports errors itself.
    log_errors_only(spark, "org.apache.spark.sql.classic.SparkSession")
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
