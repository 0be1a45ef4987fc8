"""Build and test silver and gold on the run's branch: one ``dbt build`` in one Spark session.

Readers of main see nothing of it. dbt's artifacts are left in ``LAKEHOUSE_HOME/dbt/target``, its documentation of every
table and column there too, as one page: ``static_index.html``.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from dbt.artifacts.schemas.run import RunExecutionResult
from dbt.cli.main import dbtRunner, dbtRunnerResult
from dbt_common.events.base_types import EventMsg
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.app import SparkApp, main
from synapse_lakehouse.events import judging
from synapse_lakehouse.lake import audit, remaking
from synapse_lakehouse.settings import PROJECT
from synapse_lakehouse.state import integrity, retention

FAILED = frozenset({"error", "fail", "runtime error", "partial success"})


def build_models(app: SparkApp) -> None:
    """Build every model and run every data test; unit tests are about the code, not about the data."""
    project, home = PROJECT / "dbt", app.settings.lakehouse_home / "dbt"
    (home / "target" / "run_results.json").unlink(missing_ok=True)
    # dbt copies variables with this prefix into its artifacts, so that a reader knows which run they are of.
    os.environ["DBT_ENV_CUSTOM_ENV_RUN_ID"] = app.run.run_id
    _hush(app.spark)
    judging.register(app.spark)
    # What follows from a filter for all aliases of a column is worked out beforehand, which takes Spark minutes and all
    # memory where columns pass through many steps, as in the models of what users may see.
    app.spark.conf.set("spark.sql.constraintPropagation.enabled", "false")

    def progress(event: EventMsg) -> None:
        if event.info.name == "NodeFinished" and event.data.node_info.resource_type == "model":
            relation, took = event.data.node_info.node_relation, event.data.run_result.execution_time
            app.progress(f"{relation.schema}.{relation.alias}: {event.data.run_result.status} in {took:.1f} s")

    folders = ["--project-dir", project, "--profiles-dir", project, "--target-path", home / "target"]
    common = [*map(str, folders), "--log-path", str(home / "logs"), "--vars", json.dumps(variables(app))]
    result = dbtRunner(callbacks=[progress]).invoke(["build", "--exclude-resource-type", "unit_test", *common])
    if not result.success:
        app.spark.stop()
        sys.exit(f"error: {explanation(result)}")
    audit.append(app.catalog, "audit.views", views(result), app.run)
    audit.append(app.catalog, "audit.integrity", findings(app), app.run)
    dbtRunner().invoke(["docs", "generate", "--static", "--no-compile", *common])


def views(result: dbtRunnerResult) -> list[dict[str, Any]]:
    """Rows of ``audit.views``: what publishing makes of the views that dbt tried."""
    results = result.result.results if isinstance(result.result, RunExecutionResult) else []
    models = [one.node for one in results if one.node.resource_type == "model"]
    return [
        {"view_name": f"{model.schema}.{model.alias}", "sql": model.compiled_code, "tried_at": datetime.now(UTC)}
        for model in models
        if model.config.materialized == "view"
    ]


def findings(app: SparkApp) -> list[dict[str, Any]]:
    """Rows of ``audit.integrity``, one for each check whether it found something or not."""
    counted = app.spark.sql(
        "select check_name, count(*) as findings, count_if(severity <> 'info') as serious"
        " from gold.state_integrity group by check_name"
    )
    none = {check.name: {"check_name": check.name, "findings": 0, "serious": 0} for check in integrity.CHECKS}
    found = none | {row["check_name"]: row.asDict() for row in counted.collect()}
    return [row | {"counted_at": datetime.now(UTC)} for row in found.values()]


def variables(app: SparkApp) -> dict[str, Any]:
    """What the models want to know beside the tables."""
    taken = [one["taken_at"] for one in audit.of_run(app.catalog, "audit.snapshots", app.run.run_id)]
    as_of = app.settings.lakehouse_as_of or max(taken, default=app.run.end)
    names = [f"bronze.{table.name}" for table in catalogue.load().copied()]
    names += [f"silver.{table.name}" for table in catalogue.resolved_state()]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda name: remaking.made_of(app.catalog, name, app.run.branch), names))
    return {
        "server_name": app.settings.synapse_server_name,
        "made_of": dict(zip(names, made, strict=True)),
        "rules_of_hashes": judging.RULES,
    } | retention.configured(app.settings).variables(as_of)


def _hush(spark: SparkSession) -> None:
    """dbt asks Spark for its session at every statement, and reports errors itself, shorter."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel("org.apache.spark.sql.classic.SparkSession", log4j.Level.ERROR)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")


def explanation(result: dbtRunnerResult) -> str:
    """What failed, by name, and what that means."""
    if result.exception:
        return f"dbt could not start building the models, so nothing is published: {result.exception}"
    results = result.result.results if isinstance(result.result, RunExecutionResult) else []
    failed = [
        f"  {one.node.resource_type} {one.node.name}: "
        + (f"{one.failures} rows speak against it" if one.failures else " ".join((one.message or "").split())[:500])
        for one in results
        if one.status in FAILED
    ]
    return "\n".join(
        [
            "What dbt built does not hold, so nothing is published and readers see the release before.",
            *failed,
            "The run's branch keeps what was built; dbt's log above and logs/dbt.log in LAKEHOUSE_HOME/dbt say more.",
        ]
    )


if __name__ == "__main__":
    main(__doc__, build_models)
