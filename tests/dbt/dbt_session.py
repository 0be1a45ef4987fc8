"""Run commands in one Spark session on the lake of the environment. Each input and output line is a JSON object.

``{"branch": …, "sql": …}`` returns rows.
``{"branch": …, "dbt": [arguments]}`` returns success and results by name.
``{"branch": …, "resolve": minimum of rows}`` returns whether only changed rooms were resolved.
``{"branch": …, "changes": [arguments]}`` returns whether the changes since main were found.
``{"branch": …, "build": a run's arguments}`` returns null after all models are built.
"""

import json
import sys
from contextlib import redirect_stdout
from typing import Any

from dbt.cli.main import dbtRunner
from dbt.contracts.graph.manifest import Manifest

from synapse_lakehouse.config.run import parse_run_arguments
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build import project as dbt_build_project
from synapse_lakehouse.dbt_build.change_views import register_changes
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.room_state import resolve
from synapse_lakehouse.spark_app import SparkApp

ANSWER = "answer: "


def run_dbt(arguments: list[str]) -> dict[str, Any]:
    invocation = dbtRunner().invoke(arguments)
    nodes = [result for result in getattr(invocation.result, "results", []) if hasattr(result, "node")]
    results = {result.node.name: [str(result.status), result.message] for result in nodes}
    return {"success": invocation.success, "exception": str(invocation.exception), "results": results}


def main() -> None:
    settings = Settings(_env_file=None)
    spark = create_spark_session("test dbt", settings)
    dbt_build_project.prepare_session(spark)
    for line in sys.stdin:
        command = json.loads(line)
        if command["branch"]:
            spark.conf.set("spark.wap.branch", command["branch"])
        else:
            spark.conf.unset("spark.wap.branch")
        if "sql" in command:
            answer: Any = [row.asDict() for row in spark.sql(command["sql"]).collect()]
        elif "resolve" in command:
            resolution = resolve.resolve_rooms(spark, open_catalog(settings), command["branch"], command["resolve"])
            answer = resolution.is_partial
        elif "changes" in command:
            project = dbtRunner().invoke(["parse", *command["changes"]]).result
            assert isinstance(project, Manifest)
            answer = register_changes(spark, open_catalog(settings), command["branch"], project, 0)
        elif "build" in command:
            with redirect_stdout(sys.stderr):
                dbt_build_project.build_project(SparkApp("test", parse_run_arguments(None, command["build"]), settings))
            answer = None
        else:
            answer = run_dbt(command["dbt"])
        print(ANSWER + json.dumps(answer, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
