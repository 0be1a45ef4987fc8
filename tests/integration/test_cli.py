"""The operator's command on a small lake with two releases, a view and the branch of a failed run, without a JVM."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pytest
from typer.testing import CliRunner, Result

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write.tables import ensure_audit_tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, find_free_port
from synapse_lakehouse.local.services import run_embedded_server
from tests.support.branch_views import create_branch_views
from tests.support.two_releases import EVENTS, RUNS, leave_branch, publish_release

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[EmbeddedServer]:
    with run_embedded_server(Settings(_env_file=None, lakehouse_home=home)) as running:
        yield running


@pytest.fixture(scope="module")
def new_catalog(
    server: EmbeddedServer, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Settings]:
    def make(name: str) -> Settings:
        server.create_database(name)
        return Settings(
            _env_file=None,
            lakehouse_home=home,
            lakehouse_catalog_uri=server.dsn(name),
            lakehouse_warehouse=str(tmp_path_factory.mktemp("warehouse")),
        )

    return make


@pytest.fixture(scope="module")
def lake(new_catalog: Callable[[str], Settings]) -> Settings:
    settings = new_catalog("cli")
    with closing(open_catalog(settings)) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        ensure_audit_tables(catalog)
        for name in ("bronze.events", "gold.events"):
            catalog.create_table(name, EVENTS)
        for number, run in enumerate(RUNS[:2], 1):
            publish_release(catalog, number, run)
        leave_branch(catalog, RUNS[2])
    return settings


@pytest.fixture
def run_command(lake: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs the command on ``lake`` or on other settings."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, settings: Settings = lake) -> Result:
        return CliRunner().invoke(app, arguments, env=settings.to_environment() | {"COLUMNS": "120"})

    return run


def _json(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_a_query_reads_the_latest_or_the_given_release(run_command: Command) -> None:
    count = "select count(*) as n from gold.events g join bronze.events using (event_id)"
    assert _json(run_command("query", count, "--format", "json")) == [{"n": 30}]
    assert _json(run_command("query", count, "--format", "json", "--release", "1")) == [{"n": 10}]
    assert run_command("query", count, "--format", "csv").stdout == "n\n30\n"
    assert "1 row" in run_command("query", count).stdout


def test_a_query_reads_views_at_their_release(run_command: Command) -> None:
    busiest = "select * from lake.gold.a_busiest"
    assert _json(run_command("query", busiest, "--format", "json")) == [{"room_id": "!2:x", "events": 20}]
    assert _json(run_command("query", busiest, "--format", "json", "--release", "1")) == []


def test_a_query_lists_the_tables_of_a_release(run_command: Command) -> None:
    names = "select table_schema || '.' || table_name as name from information_schema.tables"
    tables = {row["name"] for row in _json(run_command("query", names, "--format", "json"))}
    assert tables == {*store.AUDIT_SCHEMAS, "bronze.events", "gold.events", "gold.busy_rooms", "gold.a_busiest"}


def test_an_unknown_table_is_reported_with_near_names(run_command: Command) -> None:
    result = run_command("query", "select * from gold.evnts")
    assert result.exit_code == 1
    assert "There is no table" in result.stderr
    assert "in release 2. Did you mean gold.events" in result.stderr
    assert "Did you mean bronze.events or gold.events?" in run_command("query", "select * from events").stderr


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", "syntax error"),
        ("select nope from gold.events", 'column "nope" not found'),
        ("copy (select 1) to 'out.csv'", "one SELECT"),
        ("explain analyze copy (select 1) to 'out.csv'", "one SELECT"),
        ("select 1; select 2", "one SELECT"),
        ("select * from read_text('/etc/hostname')", "no other files"),
        ("select * from read_csv('http://127.0.0.1:1/x.csv')", "no other files"),
    ],
)
def test_an_invalid_query_is_explained_and_does_nothing(
    run_command: Command, tmp_path: Path, sql: str, message: str
) -> None:
    result = run_command("query", sql)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["query", "select * from gold.events"], ["positions"], ["summary"]])
def test_an_unknown_release_is_reported(run_command: Command, command: list[str]) -> None:
    result = run_command(*command, "--release", "9")
    assert result.exit_code == 1
    assert "release 9" in result.stderr


def test_a_query_before_the_first_release_is_explained(
    run_command: Command, new_catalog: Callable[[str], Settings]
) -> None:
    empty = new_catalog("cli_empty")
    result = run_command("query", "select * from gold.events", settings=empty)
    assert result.exit_code == 1
    assert "no release yet" in result.stderr
    assert "make run" in result.stderr
    with closing(open_catalog(empty)) as catalog:
        catalog.create_namespace("audit")
        catalog.create_table("audit.checks", store.AUDIT_SCHEMAS["audit.checks"])
    checks = "select count(*) as n from audit.checks"
    assert _json(run_command("query", checks, "--format", "json", settings=empty)) == [{"n": 0}]


def test_without_a_lake_nothing_is_started(run_command: Command, tmp_path: Path) -> None:
    result = run_command("query", "select 1", settings=Settings(_env_file=None, lakehouse_home=tmp_path / "home"))
    assert result.exit_code == 1
    assert "There is no lake in" in result.stderr
    assert not (tmp_path / "home").exists()


def test_an_unreachable_catalog_is_reported(run_command: Command, lake: Settings) -> None:
    uri = f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/iceberg"
    result = run_command("positions", settings=lake.model_copy(update={"lakehouse_catalog_uri": uri}))
    assert result.exit_code == 1
    assert "The Iceberg catalog cannot be read" in result.stderr
    assert "LAKEHOUSE_CATALOG_URI" in result.stderr
    assert "secret-word" not in result.output


def test_gaps_of_all_releases_and_of_a_failed_run(run_command: Command) -> None:
    def gaps(*arguments: str) -> list[tuple[str, int, int, int | None]]:
        gaps = _json(run_command("positions", "--gaps", "--format", "json", *arguments))
        return [(gap["class"], gap["first_id"], gap["last_id"], gap["release"]) for gap in gaps]

    first = [("rolled_back", 10, 12, 1)]
    assert gaps("--release", "1") == [*first, ("in_flight", 31, 31, 1)]
    later = [*first, ("rolled_back", 20, 22, 2), ("in_flight", 32, 32, 2)]
    assert gaps("--release", "2") == later
    assert gaps() == [("lost", 7, 7, None), *later]
    output = run_command("positions", "--gaps").stdout
    assert "not published" in output
    assert "20 to 22" in output


def test_positions_have_bound_lag_and_writers(run_command: Command) -> None:
    caches, events = _json(run_command("positions", "--format", "json"))
    assert (events["stream"], events["bound"], events["lag"]) == ("events", 29, 4)
    assert events["writers"] == {"p1": 29, "p2": 31}
    assert (caches["bound"], caches["lag"], caches["sequence_value"]) == (None, None, 0)
    assert "events_stream_seq 33" in run_command("positions").stdout


def test_releases_and_summary(run_command: Command) -> None:
    assert [release["release"] for release in _json(run_command("releases", "--format", "json"))] == [2, 1]
    printed = run_command("summary").stdout
    assert "previous try" not in printed
    assert "Release 2 published at 2026-11-19 00:00:00Z" in printed
    assert "40 passed, 1 warned, 0 failed" in printed
    assert "warned: events: no late rows (3 late rows)" in printed
    assert "2.0 KiB" in printed
    assert "redis: 2,500 tokens of 2 writers" in printed
    assert "0 missing" in " ".join(printed.split())
    assert "Replication" not in run_command("summary", "--release", "1").stdout


def test_a_failed_runs_branch_is_read_listed_and_dropped(run_command: Command, lake: Settings) -> None:
    branch = RUNS[2].branch
    with duckdb_reader.open_duckdb(lake) as connection:
        create_branch_views(connection, lake, branch, ["bronze.events", "gold.events"])
        rows = connection.execute("select (select count(*) from bronze.events), (select count(*) from gold.events)")
        assert rows.fetchall() == [(35, 30)]
    with closing(open_catalog(lake)) as catalog:
        assert [branch in catalog.load_table(name).refs() for name in ("bronze.events", "gold.events")] == [True, False]
    (row,) = _json(run_command("branches", "--format", "json"))
    assert (row["branch"], row["tables"], row["run"], row["state"]) == (
        branch,
        1,
        RUNS[2].run_id,
        "remaining",
    )

    assert "No table has a branch nonsense" in run_command("branches", "drop", branch, "nonsense").stderr
    with closing(open_catalog(lake)) as catalog:
        lease = Lease(catalog, RUNS[2].run_id, branch, 60)
        lease.acquire()
        result = run_command("branches", "drop", branch)
        assert result.exit_code == 1
        assert "holds the lake lease" in result.stderr
        assert _json(run_command("branches", "--format", "json"))[0]["state"] == "active"
        lease.release()

    assert run_command("branches", "drop", branch).stdout == f"Dropped {branch} from 1 table.\n"
    assert _json(run_command("branches", "--format", "json")) == []
    assert _json(run_command("query", "select count(*) as n from bronze.events", "--format", "json")) == [{"n": 30}]


@pytest.mark.parametrize("tool", ["spark", "duckdb", "pyiceberg", "trino"])
def test_connect_never_prints_a_secret(run_command: Command, lake: Settings, tool: str) -> None:
    password = unquote(str(urlsplit(str(lake.lakehouse_catalog_uri)).password))
    keys = lake.model_copy(update={"lakehouse_catalog_properties": {"s3.secret-access-key": "secret-word"}})
    result = run_command("connect", tool, settings=keys)
    assert result.exit_code == 0
    assert password not in result.output
    assert "secret-word" not in result.output


def test_the_printed_duckdb_script_runs(run_command: Command) -> None:
    with duckdb.connect() as connection:
        connection.execute(run_command("connect", "duckdb", "--release", "1").stdout)
        assert connection.execute("select count(*) from gold.events").fetchall() == [(10,)]
        assert connection.execute("select events from gold.busy_rooms").fetchall() == [(10,)]


def test_the_printed_pyiceberg_script_runs(run_command: Command, lake: Settings, tmp_path: Path) -> None:
    script = tmp_path / "read.py"
    script.write_text(run_command("connect", "pyiceberg", "--release", "1").stdout)
    password = unquote(str(urlsplit(str(lake.lakehouse_catalog_uri)).password))
    result = subprocess.run(
        [sys.executable, script], env=os.environ | {"PGPASSWORD": password}, capture_output=True, text=True, check=True
    )
    assert "event_id: string" in result.stdout
    assert '"$1_9"' in result.stdout
    assert '"$2_' not in result.stdout


@pytest.mark.heavy
def test_the_printed_spark_command_runs(run_command: Command, lake: Settings, tmp_path: Path) -> None:
    script = tmp_path / "read.sh"
    printed = run_command("connect", "spark", "--release", "1").stdout
    table = re.search(r"SELECT \* FROM (.*);", printed)
    assert table
    script.write_text(printed.replace("spark-sql ", f"spark-sql -e 'select count(*) from {table[1]}' "))
    password = unquote(str(urlsplit(str(lake.lakehouse_catalog_uri)).password))
    environment = os.environ | {"PGPASSWORD": password, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    result = subprocess.run(
        ["bash", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.split() == ["10"]
    assert (tmp_path / "lake.conf").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "metastore_db").exists()


def test_a_query_imports_nothing_heavy(lake: Settings, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom synapse_lakehouse.cli import app\n"
        "app(['query', 'select count(*) from gold.events'], standalone_mode=False)\n"
        "heavy = {'airflow', 'pyspark', 'great_expectations', 'pyiceberg', 'pandas', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | lake.to_environment(), cwd=tmp_path, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert result.stdout.endswith("\n[]\n")
