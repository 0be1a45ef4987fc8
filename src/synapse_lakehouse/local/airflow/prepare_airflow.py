"""Prepare the local Airflow: home, metadata database, environment. Airflow runs as a program, and is not imported."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from synapse_lakehouse import file_lock
from synapse_lakehouse.config.homeservers import get_dag_id
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.java import class_archive, jars, runtime
from synapse_lakehouse.local import network_environment, services
from synapse_lakehouse.local.airflow import credentials
from synapse_lakehouse.local.postgres import roles
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

POOLS = {
    "spark_drivers": (3, "Spark apps, each with the memory of a driver; opening a run and copying take two slots"),
}
"""Slots and description of each pool, by name. The operator may change the number of slots."""

SPARK = "AIRFLOW_CONN_SPARK_DEFAULT"
"""Environment variable of Airflow's connection ``spark_default``: the cluster on which Spark apps run."""

_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"

_UNFINISHED = ("queued", "scheduled", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule")
"""States in which Airflow would continue a run or a task."""

LOCAL_SPARK = {
    SPARK: json.dumps({"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}),
    "SPARK_LOCAL_IP": "127.0.0.1",
}

BIN = Path(sys.executable).parent


class LocalAirflowError(LakehouseError):
    """Airflow could not be prepared. The message ends with Airflow's output."""


@dataclass(frozen=True)
class PreparedAirflow:
    """A prepared Airflow: the resolved settings, and the environment variables of its programs."""

    settings: Settings
    environment: dict[str, str] = field(repr=False)

    @property
    def main_dag(self) -> str:
        """ID of the DAG ``lakehouse`` of the homeserver."""
        return get_dag_id("lakehouse", self.settings.lakehouse_homeserver)

    @property
    def home(self) -> Path:
        """AIRFLOW_HOME."""
        return get_airflow_home(self.settings)


def get_airflow_home(settings: Settings) -> Path:
    """Return the AIRFLOW_HOME that belongs to ``settings``."""
    return settings.lakehouse_home / "airflow"


@contextmanager
def prepare_airflow(
    settings: Settings | None = None, port: int = 8080, report: Callable[[str], None] = lambda stage: None
) -> Iterator[PreparedAirflow]:
    """Prepare everything that a DAG run needs: services, Spark's jars, Airflow's database.

    Services run until the context ends. Concurrent calls wait for each other, and then share the servers.

    :param port: port of the API server of this Airflow.
    :param report: called with the name of each stage that may take long.
    :raises LakehouseError: when a part cannot be started or fetched.
    """
    configured = settings or Settings()
    refuse_configured_airflow()
    services.create_home(configured)
    with ExitStack() as stack:
        with file_lock.exclusive_lock(configured.lakehouse_home / "prepare.lock"):
            runtime.check_driver_options(configured)
            report("starting the embedded PostgreSQL")
            server = stack.enter_context(services.run_embedded_server(configured))
            resolved = stack.enter_context(services.connect_services(configured))
            services.remember_lake(configured)
            report("preparing Spark and Airflow")
            with ThreadPoolExecutor(1) as beside:
                spark = beside.submit(
                    lambda: class_archive.create_class_archive(configured, jars.install_jars(configured))
                )
                metadata = roles.ensure_owner(server, services.AIRFLOW_DATABASE)
                airflow = PreparedAirflow(resolved, build_environment(resolved, metadata, port))
                _migrate_database(airflow, server)
                spark.result()
        yield airflow


def end_test_runs(airflow: PreparedAirflow, run_id: str | None = None) -> None:
    """Mark stopped runs of `airflow dags test` as failed. Otherwise a scheduler would continue them.

    :param run_id: the stopped run; by default all test runs, none of which may be running.
    """
    metadata = urlsplit(airflow.environment[_DATABASE])._replace(scheme="postgresql").geturl()
    stopped = (
        "select dag_id, run_id from dag_run where split_part(dag_id, '.', 1) = 'lakehouse' and triggered_by = 'TEST'"
        " and state = any(%(unfinished)s) and run_id = coalesce(%(run)s, run_id)"
    )
    failed_sql = "set state = 'failed', end_date = now() where state = any(%(unfinished)s)"
    values = {"unfinished": list(_UNFINISHED), "run": run_id}
    with psycopg.connect(metadata) as connection:
        for table in ("task_instance", "dag_run"):
            connection.execute(f"update {table} {failed_sql} and (dag_id, run_id) in ({stopped})".encode(), values)


def refuse_configured_airflow() -> None:
    """Raise :class:`LocalAirflowError` if another Airflow is configured, for example by docker-compose.yaml."""
    if _DATABASE in os.environ:
        raise LocalAirflowError(
            f"Another Airflow is configured ({_DATABASE} is set), as in the containers of Docker Compose. This "
            "command would start a second Airflow. Use the configured Airflow: trigger the DAG in its UI, and run "
            "`airflow …` instead of `lakehouse airflow …`."
        )


def build_environment(settings: Settings, metadata: str, port: int) -> dict[str, str]:
    """Return this process's environment with the variables of Airflow, Spark and the lakehouse.

    :param metadata: libpq URI of Airflow's own database.
    """
    home = get_airflow_home(settings)
    base = network_environment.remove_unusable_variables(runtime.build_java_environment())
    address = f"http://127.0.0.1:{port}"
    airflow = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT_FOLDER / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        # With the default, 30 s, parsing the DAGs of 20 homeservers takes 14% of a core.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "180",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__EXPOSE_CONFIG": "False",
        _DATABASE: _with_driver("psycopg2", metadata),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": _with_driver("psycopg", metadata),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FOLDER_PERMISSIONS": "0o700",
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FILE_PERMISSIONS": "0o600",
    } | credentials.ensure_credentials(home)
    programs = {"PATH": f"{BIN}:{base.get('PATH', os.defpath)}"}
    return (base if SPARK in base else LOCAL_SPARK | base) | settings.to_environment() | airflow | programs


def _with_driver(driver: str, uri: str) -> str:
    return urlsplit(uri)._replace(scheme=f"postgresql+{driver}").geturl()


def _migrate_database(airflow: PreparedAirflow, server: EmbeddedServer) -> None:
    """Migrate the metadata database to this version of Airflow, and create the pools.

    A comment on the database records that both are done.
    """
    name, prepared = services.AIRFLOW_DATABASE, f"{version('apache-airflow')}, pools {', '.join(POOLS)}"
    if server.comment(name) == prepared:
        return
    _run_airflow(airflow, "db", "migrate")
    existing = json.loads(_run_airflow(airflow, "pools", "list", "--output", "json"))
    for pool, (slots, description) in POOLS.items():
        if pool not in {entry["pool"] for entry in existing}:
            _run_airflow(airflow, "pools", "set", pool, str(slots), description)
    server.tool("psql", "-XqAtc", f"comment on database {name} is '{prepared}'", stdout=subprocess.DEVNULL)


def _run_airflow(airflow: PreparedAirflow, *arguments: str) -> str:
    process = subprocess.run(
        [BIN / "airflow", *arguments], env=airflow.environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise LocalAirflowError(
            f"`airflow {' '.join(arguments)}` failed: {(process.stderr or process.stdout).strip()[-2000:]}"
        )
    return process.stdout
