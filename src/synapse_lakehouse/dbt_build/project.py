"""dbt's project on the run's branch: read, built and documented."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.dbt_build import incremental
from synapse_lakehouse.dbt_build.dbt_callback import Finding
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.events import event_udfs
from synapse_lakehouse.iceberg.write import branches, input_fingerprint
from synapse_lakehouse.room_state import integrity_checks, retention
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams.gaps import gap_udfs

_FAILED: Final = frozenset({"error", "fail", "runtime error", "partial success"})
_ASKED_LATE: Final = frozenset({"as_of", "made_of"})
"""Variables that say nothing of how models hang together."""


class DbtBuildError(LakehouseError):
    """dbt could not build every model, or a data test failed."""


def build_project(app: SparkApp) -> None:
    """Build every model and run every data test, then document them; exit with what does not hold."""
    home = app.settings.lakehouse_home / "dbt"
    (home / "target" / "run_results.json").unlink(missing_ok=True)
    # dbt copies variables with this prefix into its artifacts, so that a reader knows which run they are of.
    os.environ["DBT_ENV_CUSTOM_ENV_RUN_ID"] = app.run.run_id

    def progress(event: EventMsg) -> None:
        if event.info.name == "NodeFinished" and event.data.node_info.resource_type == "model":
            relation, took = event.data.node_info.node_relation, event.data.run_result.execution_time
            app.report_progress(f"{relation.schema}.{relation.alias}: {event.data.run_result.status} in {took:.1f} s")

    built = run_dbt(app, ["build", "--exclude-resource-type", "unit_test"], progress)
    if not built.done.success:
        app.spark.stop()
        raise DbtBuildError(describe_failure(built.done))
    store.append_audit_rows(app.catalog, "audit.views", build_view_rows(built.done), app.run)
    store.append_audit_rows(app.catalog, "audit.integrity", count_integrity_findings(app), app.run)
    dbtRunner(built.project).invoke(
        ["docs", "generate", "--static", "--no-compile", *get_dbt_arguments(app, built.told)]
    )


class DbtResult(NamedTuple):
    """What a command of dbt came to, the project that it built, and the variables that it was told."""

    done: dbtRunnerResult
    project: Manifest | None
    told: Mapping[str, Any]


def run_dbt(app: SparkApp, command: Iterable[str], *callbacks: Callable[[EventMsg], None]) -> DbtResult:
    """Let dbt carry out a command that builds models, the large ones of what changed."""
    known = get_dbt_variables(app)
    with ThreadPoolExecutor(1) as pool:
        # Nothing of this needs Spark, which still starts.
        reading = pool.submit(parse_project, app, known)
        increment = incremental.of_models(app.catalog, app.run.branch)
        told = known | increment.variables()
        with closing(Finding(increment, lambda: app.spark, app.settings, app.run.branch, app.report_progress)) as find:
            find.project = reading.result()
            prepare_session(app.spark)
            done = dbtRunner(find.project, [*callbacks, find]).invoke([*command, *get_dbt_arguments(app, told)])
    return DbtResult(done, find.project, told)


def parse_project(app: SparkApp, told: Mapping[str, Any]) -> Manifest | None:
    """The project as dbt reads it; None where it cannot, which it says when it builds.

    What is only asked while building is not told, so that dbt, where nothing else changed either, goes on from what it
    read for the run before.
    """
    known = {name: value for name, value in told.items() if name not in _ASKED_LATE}
    read = dbtRunner().invoke(["parse", *get_dbt_arguments(app, known)])
    return read.result if isinstance(read.result, Manifest) else None


def get_dbt_arguments(app: SparkApp, told: Mapping[str, Any]) -> list[str]:
    """What every command of dbt is given: where the project and its artifacts are, and variables."""
    return [*_folders(app.settings.lakehouse_home / "dbt"), "--vars", json.dumps(told)]


def build_view_rows(result: dbtRunnerResult) -> list[dict[str, Any]]:
    """Rows of ``audit.views``: what publishing makes of the views that dbt tried."""
    results = result.result.results if isinstance(result.result, RunExecutionResult) else []
    models = [one.node for one in results if isinstance(one.node, ModelNode)]
    return [
        {"view_name": f"{model.schema}.{model.alias}", "sql": model.compiled_code, "tried_at": datetime.now(UTC)}
        for model in models
        if model.config.materialized == "view"
    ]


def count_integrity_findings(app: SparkApp) -> list[dict[str, Any]]:
    """Rows of ``audit.integrity``, one for each check whether it found something or not."""
    counted = app.spark.sql(
        "select check_name, count(*) as findings, count_if(severity <> 'info') as serious"
        " from gold.state_integrity group by check_name"
    )
    none = {
        check.name: {"check_name": check.name, "findings": 0, "serious": 0}
        for check in integrity_checks.INTEGRITY_CHECKS
    }
    found = none | {row["check_name"]: row.asDict() for row in counted.collect()}
    return [row | {"counted_at": datetime.now(UTC)} for row in found.values()]


def get_dbt_variables(app: SparkApp) -> dict[str, Any]:
    """What the models want to know beside the tables."""
    taken = [one["taken_at"] for one in store.read_run_rows(app.catalog, "audit.snapshots", app.run.run_id)]
    as_of = app.settings.lakehouse_as_of or max(taken, default=app.run.end)
    names = branches.list_branched_tables(app.catalog)
    with ThreadPoolExecutor(4) as pool:
        made = pool.map(lambda name: input_fingerprint.read_fingerprint(app.catalog, name, app.run.branch), names)
    return {
        "server_name": app.settings.synapse_server_name,
        "made_of": dict(zip(names, made, strict=True)),
        "rules_of_events": event_udfs.RULES_FINGERPRINT,
        # As digits: a room ID may have any character.
        "acknowledged_rooms": [room.encode().hex() for room in app.settings.lakehouse_acknowledged_rooms.split()],
        "feed_length": app.settings.lakehouse_feed_length,
        "recent_rooms_per_user": app.settings.lakehouse_recent_rooms,
        "recent_events_per_room": app.settings.lakehouse_recent_events,
    } | retention.read_retention(app.settings).variables(as_of)


def describe_failure(result: dbtRunnerResult) -> str:
    """What failed, by name, and what that means."""
    if result.exception:
        return f"dbt could not start building the models, so nothing is published: {result.exception}"
    results = result.result.results if isinstance(result.result, RunExecutionResult) else []
    failed = [
        f"  {one.node.resource_type} {one.node.name}: "
        + (f"{one.failures} rows speak against it" if one.failures else " ".join((one.message or "").split())[:500])
        for one in results
        if one.status in _FAILED
    ]
    return "\n".join(
        [
            "What dbt built does not hold, so nothing is published and readers see the release before.",
            *failed,
            "The run's branch keeps what was built; dbt's log above and logs/dbt.log in LAKEHOUSE_HOME/dbt say more.",
        ]
    )


def _folders(home: Path) -> list[str]:
    project = str(PROJECT_FOLDER / "dbt")
    targets = ["--target-path", str(home / "target"), "--log-path", str(home / "logs")]
    return ["--project-dir", project, "--profiles-dir", project, *targets]


def prepare_session(spark: SparkSession) -> None:
    """Set a session up for dbt and these models."""
    event_udfs.register(spark)
    gap_udfs.register(spark)
    # What follows from a filter for all aliases of a column is worked out beforehand, which takes Spark minutes and all
    # memory where columns pass through many steps, as in the models of what users may see.
    spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
    # dbt asks Spark for its session at every statement, and reports errors itself, shorter.
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel("org.apache.spark.sql.classic.SparkSession", log4j.Level.ERROR)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
