"""``lakehouse metrics``: the metrics of the lake in Prometheus' text format."""

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session


def metrics() -> None:
    """Print metrics for Prometheus: release, streams, findings, sizes, incidents, duration and rows of the last run."""
    from synapse_lakehouse.metrics.render import render_metrics

    with lake_session.open_lake() as (settings, connection):
        output.echo(render_metrics(connection, settings), end="")
