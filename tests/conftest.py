"""Fixtures of all tests: one embedded PostgreSQL server, the restored sample, and one published lake."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings
from xdist.remote import Producer

from sample import visibility_answers
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.branches import load_run_tables
from synapse_lakehouse.java import class_archive, jars
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.local.services import connect_services, run_embedded_server
from tests.support.cluster import cluster
from tests.support.dbt import DbtSession, dbt_session
from tests.support.privacy_canaries import PlantedSample, planted_sample
from tests.support.scheduler import LAST, LakeScheduling, lake, length
from tests.visibility import record

BIN = Path(sys.executable).parent
FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}
"""Spark properties of lakes with few rows: planning and compiling would take much longer than processing the rows."""

METRICS_FILE = "metrics.prom"
"""The file in LAKEHOUSE_HOME with the metrics of the shared lake."""

# Machines differ and a first call may compile code, so examples have no deadline. All runs use the same examples:
# otherwise a run could fail because of an older defect. `pytest --hypothesis-profile search` uses random examples.
hypothesis_settings.register_profile("unhurried", deadline=None, derandomize=True)
hypothesis_settings.register_profile("search", deadline=None)
hypothesis_settings.load_profile("unhurried")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LakeScheduling:
    """Return the scheduler that distributes the tests to processes."""
    return LakeScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    items.sort(key=lambda item: length(item.path))


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Give the tests of the shared lake that ends last more CPU time than all others."""
    if "PYTEST_XDIST_WORKER" in os.environ and lake(item.path) != LAST:
        os.setpriority(os.PRIO_PROCESS, 0, 5)


@dataclass(frozen=True)
class PublishedLake:
    """A lake that ``lakehouse run`` published from the sample, and what the command printed."""

    settings: Settings
    output: str
    source: PlantedSample

    def lakehouse(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``lakehouse`` on this lake."""
        return lakehouse(self.settings, *arguments)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Run ``lakehouse``, which must succeed, and return its rows."""
        result = self.lakehouse(*arguments, "--format", "json")
        assert result.returncode == 0, result.stderr
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows


@dataclass(frozen=True)
class VisibilityLake:
    """A lake with one run that built all tables on its branch and published nothing.

    Its source contains all cases that affect visibility. ``applications`` Spark apps ran on a cluster. ``session``
    built the models.
    """

    settings: Settings
    run: Run
    applications: int
    session: DbtSession


def lakehouse(settings: Settings, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``lakehouse`` with ``settings`` in a process of its own."""
    return subprocess.run(
        [BIN / "lakehouse", *arguments], env=environment(settings) | variables, cwd=settings.lakehouse_home, text=True,
        capture_output=True, timeout=1800, check=False,
    )  # fmt: skip


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of this process with ``settings``."""
    return os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "120"} | settings.to_environment()


def use_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set ``settings`` in the environment of this process."""
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    for name in Settings.model_fields:
        os.environ.pop(name.upper(), None)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LAKEHOUSE_HOME of the tests. It shares only the jars with the checkout."""
    home = tmp_path_factory.mktemp("lakehouse")
    shared = Settings(_env_file=None, lakehouse_home=PROJECT_FOLDER / ".lakehouse")
    class_archive.create_class_archive(shared, jars.install_jars(shared))
    (home / "spark").symlink_to(shared.lakehouse_home / "spark")
    return home


@pytest.fixture(scope="session")
def settings(home: Path) -> Iterator[Settings]:
    """Settings of the shared lake. PostgreSQL runs, and the sample is restored."""
    own = Settings(_env_file=None, lakehouse_home=home, lakehouse_spark_properties=FEW_ROWS)
    with connect_services(own) as resolved:
        yield resolved


@pytest.fixture(scope="session")
def server(settings: Settings) -> Iterator[EmbeddedServer]:
    """The PostgreSQL server of all tests."""
    with run_embedded_server(settings) as server:
        yield server


@pytest.fixture(scope="session")
def sample_dsn(settings: Settings) -> str:
    """The database of the restored sample. Tests only read it."""
    assert settings.synapse_dsn
    return settings.synapse_dsn


def _await_no_sessions(server: EmbeddedServer, database: str) -> None:
    """Wait until the database has no sessions: PostgreSQL copies no database in use, and processes may end late."""
    sessions = (
        "select pid, application_name, state, backend_start, query from pg_stat_activity"
        " where datname = %s and backend_type = 'client backend'"
    )
    deadline = time.monotonic() + 60
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        while open_sessions := connection.execute(sessions, [database]).fetchall():
            assert time.monotonic() < deadline, f"{database} still has sessions: {open_sessions}"
            time.sleep(0.2)


@contextmanager
def copied_source(server: EmbeddedServer, database: str = sample.SAMPLE_DATABASE) -> Iterator[str]:
    """Copy a database, by default the sample, for tests that write. The value is the libpq URI."""
    name = f"source_{uuid.uuid4().hex[:8]}"
    _await_no_sessions(server, database)
    server.tool("createdb", "--template", database, name)
    yield server.dsn(name)
    server.tool("dropdb", "--force", name)


@contextmanager
def lake_maker(server: EmbeddedServer, settings: Settings, folder: Path) -> Iterator[Callable[..., Settings]]:
    """Return a function that creates an empty lake, with its warehouse in ``folder``, and returns its settings."""
    created: list[str] = []

    def make(**changes: object) -> Settings:
        name = f"lake_{uuid.uuid4().hex[:8]}"
        server.create_database(name)
        created.append(name)
        own = {"lakehouse_catalog_uri": server.dsn(name), "lakehouse_warehouse": str(folder / name)}
        return settings.model_copy(update=own | changes)

    yield make
    for name in created:
        server.tool("dropdb", "--force", name)


@pytest.fixture
def source_copy(server: EmbeddedServer, sample_dsn: str) -> Iterator[str]:
    """The libpq URI of a copy of the sample, for a test that writes."""
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture
def new_lake(server: EmbeddedServer, settings: Settings, tmp_path: Path) -> Iterator[Callable[..., Settings]]:
    """A function that creates an empty lake and returns its settings."""
    with lake_maker(server, settings, tmp_path) as make:
        yield make


@pytest.fixture(scope="session")
def published(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublishedLake]:
    """The shared lake after one run of the DAG on the sample, with Spark's own defaults."""
    with planted_sample(tmp_path_factory.mktemp("planted")) as source:
        own = {
            "synapse_dsn": source.dsn,
            "lakehouse_metrics_file": settings.lakehouse_home / METRICS_FILE,
            "lakehouse_spark_properties": {},
        }
        yield publish(settings.model_copy(update=own), source)


def publish(settings: Settings, source: PlantedSample, **variables: str) -> PublishedLake:
    """Run the DAG on ``source`` in the lake of ``settings``."""
    result = lakehouse(settings, "run", **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    return PublishedLake(settings, result.stdout + result.stderr, source)


@pytest.fixture(scope="session")
def visibility_lake(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VisibilityLake]:
    """The shared lake of the sample with all visibility cases. Synapse's answers are recorded, a cluster copied it."""
    run = Run("visibility", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
    with copied_source(server) as dsn, lake_maker(server, settings, tmp_path_factory.mktemp("visibility")) as new_lake:
        with psycopg.connect(dsn) as source:
            source.execute(record.CASES_SQL.read_text())
        retention = visibility_answers.load(record.CASES).about["sections"]["retention"]
        lifetime = retention["default_policy"]["max_lifetime"]
        own = new_lake(
            synapse_dsn=dsn, lakehouse_retention_enabled=True, lakehouse_retention_max_lifetime=str(lifetime)
        )
        tables.ensure_tables(open_catalog(own), catalogue.load_catalogue())
        with cluster(tmp_path_factory.mktemp("cluster")) as spark:
            for app in ("snapshot_tables", "resolve_state"):
                result = run_app(app, own, run, SPARK_MASTER=spark.master, **spark.variables())
                assert result.returncode == 0, result.stdout + result.stderr
        with dbt_session(environment(own), tmp_path_factory.mktemp("visibility_models")) as session:
            session.build(run)
            for table in load_run_tables(open_catalog(own)):
                assert set(table.refs()) <= {run.branch}, f"the build published {table.name()}"
            assert "redacted_by" in (own.lakehouse_home / "dbt" / "target" / "static_index.html").read_text()
            yield VisibilityLake(own, run, spark.applications(), session)


def run_app(name: str, settings: Settings, run: Run, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``spark_apps/<name>.py`` for a run that holds the lake lease, on this machine or on ``SPARK_MASTER``."""
    lease = Lease(open_catalog(settings), run.run_id, run.branch, 600)
    lease.acquire()
    try:
        return subprocess.run(
            [sys.executable, PROJECT_FOLDER / "spark_apps" / f"{name}.py", *run.to_arguments()],
            env=environment(settings) | variables, cwd=settings.lakehouse_home, text=True, capture_output=True,
            timeout=1800, check=False,
        )  # fmt: skip
    finally:
        lease.release()
