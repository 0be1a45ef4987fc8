"""Build and test the silver and gold models on a run's branch: one ``dbt build`` in one Spark session.

Readers of main see nothing of it. dbt's artifacts (``run_results.json``, ``manifest.json``) are left in
``LAKEHOUSE_HOME/dbt/target``. The exit code is 1 when a model or a test failed; their names end the output.
"""

import os
import sys

from dbt.cli.main import dbtRunner, dbtRunnerResult

from synapse_lakehouse import run
from synapse_lakehouse.lake.session import spark_session
from synapse_lakehouse.settings import PROJECT, Settings


def main() -> int:
    this = run.from_arguments(__doc__)
    settings = Settings()
    session = spark_session(f"build_models {this.run_id}", settings, this.branch)
    try:
        # dbt copies variables with this prefix into its artifacts: so a reader knows which run they are of.
        os.environ["DBT_ENV_CUSTOM_ENV_RUN_ID"] = this.run_id
        return report(build(settings))
    finally:
        session.stop()


def build(settings: Settings) -> dbtRunnerResult:
    """All models and data tests; unit tests are about the code, not about the data, and have their place in the tests."""
    project, home = PROJECT / "dbt", settings.lakehouse_home / "dbt"
    (home / "target" / "run_results.json").unlink(missing_ok=True)
    return dbtRunner().invoke(
        ["build", "--exclude-resource-type", "unit_test", "--project-dir", str(project), "--profiles-dir", str(project),
         "--target-path", str(home / "target"), "--log-path", str(home / "logs")]
    )  # fmt: skip


def report(result: dbtRunnerResult) -> int:
    """Exit code for dbt's result; what failed goes to standard error."""
    if result.exception:
        print(f"dbt could not build the models: {result.exception}", file=sys.stderr)
        return 1
    failed = [one for one in result.result.results if one.status in {"error", "fail", "runtime error"}]
    for one in failed:
        print(f"FAILED {one.node.resource_type} {one.node.name}: {one.message}", file=sys.stderr)
    if failed:
        print("Nothing of this run is published; the run's branch keeps what was built.", file=sys.stderr)
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main())
