"""``lakehouse airflow``: Airflow's own command line, on the Airflow of this lakehouse."""

import subprocess

import typer

from synapse_lakehouse.local.airflow import environment as embedded


def airflow(context: typer.Context) -> None:
    """Run a command of Airflow on this lakehouse's Airflow, as `backfill create --dag-id lakehouse …`."""
    with embedded.prepare_airflow() as prepared:
        done = subprocess.run([embedded.BIN / "airflow", *context.args], env=prepared.environment, check=False)
    raise typer.Exit(done.returncode)
