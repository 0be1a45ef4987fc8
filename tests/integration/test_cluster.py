"""A standalone Spark cluster, from pyspark's own jars and on loopback, has the same results as local Spark."""

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import PublishedLake, VisibilityLake, lakehouse, run_app
from tests.integration.test_maintenance_run import ERIN, PURGE
from tests.support.branch_views import create_branch_views
from tests.support.cluster import Cluster, WorkerMachine, cluster
from tests.support.dataframe_compare import contents, differences, read_release, release_of
from tests.support.object_server import object_server
from tests.support.remote_workers import PYTHON, remote_machines

AS_OF = datetime(2026, 11, 22, tzinfo=UTC)
PLAN = Run("plan", datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
EVENT = "select min(event_id) as id from gold.events"
PLAN_ROWS = "select * exclude (run_id, planned_at) from gold.compression_plan order by all"
CHANGE = (
    PURGE
    + """
insert into receipts_linearized
    (stream_id, instance_name, room_id, receipt_type, user_id, event_id, event_stream_ordering, data)
  select nextval('receipts_sequence'), instance_name, room_id, 'm.read', format('@new%s:synapse.example', stream_id),
    event_id, event_stream_ordering, data
  from receipts_linearized order by stream_id limit 5;
with last as (select id, room_id, event_id from state_groups order by id desc limit 1),
new as (
  insert into state_groups (id, room_id, event_id)
    select nextval('state_group_id_seq'), room_id, event_id from last returning id, room_id
),
edge as (insert into state_group_edges (state_group, prev_state_group) select new.id, last.id from new, last)
insert into state_groups_state (state_group, room_id, type, state_key, event_id)
  select new.id, room_id, type, state_key, s.event_id from new join state_groups_state as s using (room_id)
  order by state_group desc limit 1;
"""
)
UNREADABLE = """
import os, sys
print(os.geteuid() != 0, [path for path in sys.argv[1:] if os.access(path, os.R_OK)])
"""


@dataclass(frozen=True)
class RemoteLake:
    """A lake, and the cluster that runs its Spark apps."""

    settings: Settings
    spark: Cluster


def test_workers_copied_every_row(visibility_lake: VisibilityLake) -> None:
    assert visibility_lake.applications == 2, "the copy and the state resolution had executors on both workers"
    tables = catalogue.load_catalogue().copied_tables()
    with (
        duckdb_reader.open_duckdb(visibility_lake.settings) as lake,
        psycopg.connect(str(visibility_lake.settings.synapse_dsn)) as source,
    ):
        create_branch_views(
            lake, visibility_lake.settings, visibility_lake.run.branch, [f"bronze.{table.name}" for table in tables]
        )
        assert {table.name: differences(table, lake, source) for table in tables} == {
            table.name: (0, 0) for table in tables
        }


@pytest.fixture
def remote(new_lake: Callable[..., Settings], source_copy: str, tmp_path: Path) -> Iterator[RemoteLake]:
    """Yield an empty lake with three workers that share no folder with the driver, an S3 server and a REST catalog."""
    with object_server(tmp_path) as server:
        machines = remote_machines(tmp_path, ("one", "two", "three"), server.keys())
        with cluster(tmp_path, machines) as spark:
            settings = new_lake(
                **server.settings(),
                synapse_dsn=source_copy,
                lakehouse_as_of=AS_OF,
                lakehouse_erasure_days=0,
                lakehouse_spark_secret_file=spark.secret_file,
                lakehouse_spark_properties={
                    "spark.pyspark.python": PYTHON,
                    "spark.executor.memory": "1g",
                    "spark.executor.extraJavaOptions": Settings(_env_file=None).lakehouse_driver_java_options,
                    "spark.sql.shuffle.partitions": "6",
                },
            )
            _require_no_access(machines, PROJECT_FOLDER / "pyproject.toml", settings.lakehouse_home, spark.secret_file)
            yield RemoteLake(settings, spark)


@pytest.mark.heavy
def test_workers_without_a_shared_folder_run_all_apps(remote: RemoteLake, new_lake: Callable[..., Settings]) -> None:
    common = {"synapse_dsn", "lakehouse_as_of", "lakehouse_erasure_days"}
    local = new_lake(**{name: getattr(remote.settings, name) for name in common})
    maintenance = ("airflow", "dags", "test", "lake_maintenance")
    for command, change in ((("run", "--date", "2026-11-20"), CHANGE), (maintenance, "select")):
        for settings, variables in ((local, {}), (remote.settings, remote.spark.airflow_connection())):
            result = lakehouse(settings, *command, **variables)
            assert result.returncode == 0, result.stdout[-9000:] + result.stderr[-9000:]
        assert read_release(remote.settings) == read_release(local)
        with psycopg.connect(str(local.synapse_dsn)) as source:
            source.execute(change.encode())
    assert remote.spark.applications() == 11, "the apps of both DAGs had executors on all workers"

    for settings, master in ((local, "local[*]"), (remote.settings, remote.spark.master)):
        result = run_app("plan_compression", settings, PLAN, SPARK_MASTER=master, SPARK_LOCAL_IP="127.0.0.1")
        assert result.returncode == 0, result.stdout + result.stderr
    plans = [
        json.loads(lakehouse(settings, "query", PLAN_ROWS, "--format", "json").stdout)
        for settings in (local, remote.settings)
    ]
    assert plans[0]
    assert plans[1] == plans[0]

    event = json.loads(lakehouse(local, "query", EVENT, "--format", "json").stdout)[0]["id"]
    for arguments in (["query", EVENT], ["who-can-see", event], ["state-at", event], ["visible", ERIN]):
        outputs = [lakehouse(settings, *arguments, "--format", "json").stdout for settings in (local, remote.settings)]
        assert outputs[0]
        assert outputs[1] == outputs[0], arguments


def _require_no_access(machines: Iterable[WorkerMachine], *paths: Path) -> None:
    """Fail if a worker runs as root, or can read one of the driver's ``paths``."""
    for machine in machines:
        result = subprocess.run(
            [*machine.command, PYTHON, "-c", UNREADABLE, *paths],
            env=machine.variables, input="", capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stdout == "True []\n"


@pytest.mark.heavy
def test_a_cluster_publishes_the_same_content(
    published: PublishedLake, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    release = release_of(published.settings)
    local_contents = contents(published.settings, release.tables)
    with duckdb_reader.open_duckdb(published.settings) as lake:
        duckdb_reader.create_views(lake, published.settings, release, ["silver.retention_time"])
        ((as_of,),) = lake.execute("select as_of from silver.retention_time").fetchall()
    cluster_settings = new_lake(
        synapse_dsn=published.settings.synapse_dsn, lakehouse_as_of=datetime.fromtimestamp(as_of / 1000, UTC)
    )

    with cluster(tmp_path) as spark:
        result = lakehouse(
            cluster_settings, "run", "--date", f"{release.interval_start:%Y-%m-%d}", **spark.airflow_connection(),
            **spark.variables(),
        )  # fmt: skip

    assert result.returncode == 0, result.stdout + result.stderr
    assert spark.applications() == 5, "the five Spark apps ran on the workers"
    cluster_release = release_of(cluster_settings)
    assert cluster_release.interval_start == release.interval_start
    assert contents(cluster_settings, cluster_release.tables) == local_contents
