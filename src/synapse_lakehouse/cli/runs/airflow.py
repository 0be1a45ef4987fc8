"""``lakehouse airflow``: Airflow's command line, for the Airflow of this lakehouse."""

import subprocess

import typer

from synapse_lakehouse.local.airflow import prepare_airflow as embedded


def airflow(context: typer.Context) -> None:
    """Run a command of Airflow, such as `backfill create --dag-id lakehouse …`."""
    with embedded.prepare_airflow() as prepared:
        process = subprocess.run([embedded.BIN / "airflow", *context.args], env=prepared.environment, check=False)
    raise typer.Exit(process.returncode)
