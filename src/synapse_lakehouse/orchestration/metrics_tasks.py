"""Write the metrics for node_exporter after a release and after each observation of the streams."""

from airflow.sdk import Context

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.callbacks import log_failure, resolve_dag_incident
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings


def complete_release(context: Context) -> None:
    """Callback of the task that completes a run: resolves the incident of its DAG, and writes the metrics."""
    resolve_dag_incident(context)
    write_metrics(load_task_settings(context["dag"].dag_id))


def write_metrics(settings: Settings) -> None:
    """Write the metrics to LAKEHOUSE_METRICS_FILE, if it is set. Never raises, because the data does not need them."""
    if (file := settings.lakehouse_metrics_file) is None:
        return
    from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
    from synapse_lakehouse.metrics.render import render_metrics
    from synapse_lakehouse.metrics.textfile import write_textfile

    with log_failure("The metrics were not written to %s", file), open_duckdb(settings) as connection:
        write_textfile(file, render_metrics(connection, settings))
