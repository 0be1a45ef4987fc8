"""Build and test silver and gold on the run's branch: one ``dbt build`` in one Spark session.

Readers of main do not see the result. dbt writes its artifacts to ``LAKEHOUSE_HOME/dbt/target``, including one page
that documents every table and column: ``static_index.html``.
"""

from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def build_models(app: SparkApp) -> None:
    """Build every model and run every data test, but no unit tests."""
    # The import takes seconds, so it runs while Spark starts.
    from synapse_lakehouse.dbt_build import project

    project.build_project(app)


if __name__ == "__main__":
    run_spark_app(__doc__, build_models)
