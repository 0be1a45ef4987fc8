"""Build and test silver and gold on the run's branch: one ``dbt build`` in one Spark session.

Readers of main see nothing of it. dbt's artifacts are left in ``LAKEHOUSE_HOME/dbt/target``, its documentation of every
table and column there too, as one page: ``static_index.html``.
"""

from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def build_models(app: SparkApp) -> None:
    """Build every model and run every data test; unit tests are about the code, not about the data."""
    # dbt takes seconds to load, while Spark starts.
    from synapse_lakehouse.dbt_build import project

    project.build_project(app)


if __name__ == "__main__":
    run_spark_app(__doc__, build_models)
