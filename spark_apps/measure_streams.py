"""Measure the run's branch of bronze: keys of every table, and IDs, positions, safe bounds and gaps of every stream."""

from functools import partial

from synapse_lakehouse import catalogue
from synapse_lakehouse.replication.coverage.measure_coverage import prepare_comparison, summarize
from synapse_lakehouse.spark_app import SparkApp, run_spark_app
from synapse_lakehouse.streams import pipeline


def measure_streams(app: SparkApp) -> None:
    """Append to ``audit.table_facts``, ``stream_facts``, ``stream_positions`` and ``stream_gaps``.

    If a tap received commands since the previous run, append to ``audit.replication_coverage`` as well.
    """
    compare = partial(prepare_comparison, app.spark, app.catalog, app.run, catalogue.load_catalogue())
    report = pipeline.measure(app, compare)
    report.append(app.catalog, app.run)
    if report.replication_coverage:
        app.report_progress(f"replication compared: {summarize(report.replication_coverage)}")


if __name__ == "__main__":
    run_spark_app(__doc__, measure_streams)
