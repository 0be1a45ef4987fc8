"""What the catalogue does not list leaves the source in no form: all that a run leaves behind is searched."""

import secrets
import subprocess
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded import postgres, services
from synapse_lakehouse.lake.tables import arrow_schema
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.connection import conninfo
from synapse_lakehouse.source.errors import ReadFailed
from synapse_lakehouse.source.grants import script
from synapse_lakehouse.source.projection import select
from synapse_lakehouse.source.read import Chunk, copy_chunks
from synapse_lakehouse.source.snapshot import exported
from tests.conftest import lakehouse
from tests.integration.canaries import CONTROL, Canaries, contents, with_canary

CANARY = secrets.token_hex(12)
EVENT_LOG = "spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {folder}\n"


@pytest.fixture
def canaries(source_copy: str) -> Canaries:
    planted = Canaries()
    with psycopg.connect(source_copy) as owner:
        planted.plant(owner)
    return planted


@pytest.fixture
def reader(source_copy: str) -> Iterator[tuple[str, str]]:
    """The planted database for the role that ``lakehouse grants`` makes, and its password."""
    name, password = f"reader_{uuid.uuid4().hex[:8]}", secrets.token_hex(12)
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(script(catalogue.load(), Settings(_env_file=None), name).encode())
        owner.execute(f"alter role {name} password '{password}'".encode())
        yield make_conninfo(source_copy, user=name, password=password), password
        owner.execute(f"drop owned by {name}; drop role {name}".encode())


@pytest.fixture
def own_home(tmp_path: Path, settings: Settings) -> Path:
    """A LAKEHOUSE_HOME of this test's own."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "spark").symlink_to((settings.lakehouse_home / "spark").resolve())
    return home


def test_errors_do_not_quote_what_is_in_the_tables(settings: Settings, source_copy: str, tmp_path: Path) -> None:
    table = catalogue.load().table("receipts_linearized")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        # With the name of a projected key: what cannot have one is not parsed.
        owner.execute("update receipts_linearized set data = %s", ['{"ts" ' + CANARY])
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    with exported(source, catalogue.load()) as (_, snapshot):
        chunk = Chunk(
            conninfo(source), snapshot.name, select(table).as_string(), arrow_schema(table), (), tmp_path.as_uri(), {}
        )
        with pytest.raises(ReadFailed) as broken:
            copy_chunks([chunk])
    with pytest.raises(ReadFailed) as refused, exported(source, catalogue.load()) as (connection, _):
        connection.execute(select(table))
    for caught in (broken, refused):
        told = "".join(traceback.format_exception(caught.value))
        assert "invalid input syntax for type json" in told
        assert CANARY not in told


def test_canaries_are_found_nowhere(
    canaries: Canaries,
    source_copy: str,
    reader: tuple[str, str],
    own_home: Path,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (dsn, password), home = reader, own_home
    assert len(canaries.places) > 150
    control = canaries.hatch("control")
    with psycopg.connect(source_copy) as owner:
        owner.execute(with_canary(CONTROL, control))
    (home / "spark-events").mkdir()
    (tmp_path / "spark-defaults.conf").write_text(EVENT_LOG.format(folder=(home / "spark-events").as_uri()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    own = Settings(
        _env_file=None, lakehouse_home=own_home, synapse_dsn=dsn, synapse_server_name=settings.synapse_server_name,
        synapse_config=settings.synapse_config, lakehouse_log_level="INFO",
    )  # fmt: skip

    done = lakehouse(own, "run")
    assert done.returncode == 0, done.stdout + done.stderr
    (home / "printed").write_text(done.stdout + done.stderr)
    with postgres.running(home / "postgres") as server:
        for database in (services.AIRFLOW_DATABASE, services.CATALOG_DATABASE):
            dumped = server.tool("pg_dump", database=database, stdout=subprocess.PIPE).stdout
            (home / f"{database}.sql").write_bytes(dumped)

    found: dict[str, set[str]] = {}
    searched: set[str] = set()
    for path, content in contents(home):
        searched |= {path.suffix, path.relative_to(home).parts[0]}
        for place in canaries.found(content) | ({"password"} if password.encode() in content else set()):
            found.setdefault(place, set()).add(str(path.relative_to(home)))
    where_control = found.pop("control")
    assert found == {}
    assert {Path(one).parts[0] for one in where_control} == {"warehouse"}
    assert {".parquet", ".avro", ".json", ".html", "logs", "postgres", "spark-events", "data_docs", "dbt"} <= searched
    for folder, words in (("spark-events", b"SparkListenerTaskEnd"), ("logs", b"snapshot_tables")):
        assert any(words in one.read_bytes() for one in (home / folder).rglob("*") if one.is_file())
    assert b"rendered_task_instance_fields" in (home / f"{services.AIRFLOW_DATABASE}.sql").read_bytes()
