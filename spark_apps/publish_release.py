"""Publish a run that passed its audits: fast-forward main of every table, then append the release row."""

from synapse_lakehouse.iceberg.write.publish import publish_branch
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def publish_release(app: SparkApp) -> None:
    """Publish the run's branch to readers; safe to repeat after a crash."""
    server_name = str(app.settings.synapse_server_name)
    published = publish_branch(app.spark, app.catalog, app.run, server_name, app.lease.renew)
    app.report_progress(f"release {published.number} published: {len(published.tables)} tables")


if __name__ == "__main__":
    run_spark_app(__doc__, publish_release)
