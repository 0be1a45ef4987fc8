"""Columns outside the catalogue never leave the source. The tests search everything that a run writes."""

import os
import re
import secrets
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.local import services
from synapse_lakehouse.local.airflow import prepare_airflow
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import build_conninfo
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, copy_chunks
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from tests.conftest import METRICS_FILE, PublishedLake, copied_source, lakehouse, publish
from tests.support.privacy_canaries import contents
from tests.support.two_releases import publish_after_emptied

CANARY = secrets.token_hex(12)
SPARK = """
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.config.settings import Settings

spark = create_spark_session("test", Settings(_env_file=None))
spark.range(3).count()
config = getattr(getattr(spark._jvm, "org.apache.spark.internal.config.package$"), "MODULE$")
print(config.SECRET_REDACTION_PATTERN().defaultValueString())
print(spark.sparkContext.getConf().get("spark.redaction.regex"))
spark.stop()
"""
COMMANDS = ("diff", "metrics", "report", "rooms cleanup", "sizes", "sizes --all")
"""Commands that read the lake, and print no content of events."""
COMPARED = ("bronze.event_json", "bronze.events", "bronze.rooms", "bronze.users", "gold.state_integrity")
"""Tables with differences between the releases."""
OUTPUTS = [f"{command}.txt" for command in COMMANDS] + ["page.html"]
IP_ADDRESS = re.compile(r"(?<![\w.-])\d{1,3}(\.\d{1,3}){3}(?![\w.-])")
COPIED = ("copied", "body")
EVENT_LOG = "spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {folder}\n"


def test_errors_quote_no_table_content(settings: Settings, source_copy: str, tmp_path: Path) -> None:
    table = catalogue.load_catalogue().table("receipts_linearized")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update receipts_linearized set data = %s", ['{"ts" ' + CANARY])
    # The product's own statements have no cast that can fail. PostgreSQL quotes the text in the error of this cast.
    failing = "select data::json from receipts_linearized"
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    with export_snapshot(source, catalogue.load_catalogue()) as (_, snapshot):
        chunk = ReadChunk(
            build_conninfo(source), snapshot.name, failing, get_arrow_schema(table), (), tmp_path.as_uri(), {}
        )
        with pytest.raises(ReadError) as chunk_error:
            copy_chunks([chunk])
    with (
        pytest.raises(ReadError) as session_error,
        export_snapshot(source, catalogue.load_catalogue()) as (connection, _),
    ):
        connection.execute(failing)
    for error in (chunk_error, session_error):
        text = "".join(traceback.format_exception(error.value))
        assert "invalid input syntax for type json" in text
        assert CANARY not in text


def test_canaries_are_in_no_output(published: PublishedLake, server: EmbeddedServer, tmp_path: Path) -> None:
    searched, warehouses = search_outputs(published, server, tmp_path)
    assert warehouses == {"warehouse"}
    assert {"logs", "postgres", "data_docs", "dbt", "printed", "report", METRICS_FILE, *OUTPUTS} <= searched


def test_the_lake_s_files_are_private(published: PublishedLake) -> None:
    (first, *_) = sorted((published.settings.lakehouse_home / "logs").glob("run_*.log"), key=_last_written)
    paths = Path(published.settings.warehouse.removeprefix("file://")).rglob("*")
    # Tests may have written later files, with their own umask.
    written = [item for item in paths if item.is_file() and _last_written(item) <= _last_written(first)]
    assert len(written) > 500
    assert not [item for item in written if item.stat().st_mode & 0o077]


def _last_written(file: Path) -> float:
    return file.stat().st_mtime


@pytest.mark.heavy
def test_canaries_are_in_no_debug_output(
    published: PublishedLake, server: EmbeddedServer, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "events").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(EVENT_LOG.format(folder=(tmp_path / "events").as_uri()))
    settings = new_lake(synapse_dsn=published.source.dsn, lakehouse_log_level="INFO")
    debug_run = publish(settings, published.source, SPARK_CONF_DIR=str(tmp_path / "conf"))
    searched, warehouses = search_outputs(debug_run, server, tmp_path)
    assert warehouses == {"warehouse", Path(settings.warehouse).name}
    assert {"logs", "events", "printed"} <= searched
    assert any(
        b"SparkListenerTaskEnd" in item.read_bytes() for item in (tmp_path / "events").rglob("*") if item.is_file()
    )


def test_spark_s_event_log_has_no_password_of_a_rest_catalog(home: Path, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "spark-defaults.conf").write_text(EVENT_LOG.format(folder=(tmp_path / "events").as_uri()))
    settings = Settings(
        _env_file=None,
        lakehouse_home=home,
        lakehouse_catalog_uri=f"http://reader:{CANARY}@127.0.0.1:9/api",
        lakehouse_catalog_properties={"credential": f"reader:{CANARY}"},
    )
    variables = os.environ | settings.to_environment() | {"SPARK_CONF_DIR": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", SPARK], env=variables, check=True, capture_output=True, text=True)
    event_log = b"".join(item.read_bytes() for item in (tmp_path / "events").rglob("*") if item.is_file())
    assert b"spark.sql.catalog.lake.uri" in event_log
    assert CANARY.encode() not in event_log
    assert CANARY not in result.stdout + result.stderr
    default, own = result.stdout.splitlines()[-2:]
    assert own.startswith(default + "|"), "Spark's default pattern stays in force"


def test_airflows_task_logs_are_private(tmp_path: Path) -> None:
    variables = prepare_airflow.build_environment(
        Settings(_env_file=None, lakehouse_home=tmp_path), "postgresql://it/airflow", 8080
    )
    modes = {name: value for name, value in variables.items() if "FILE_TASK_HANDLER_NEW" in name}
    assert sorted(modes.values()) == ["0o600", "0o700"]


@contextmanager
def add_differences(published: PublishedLake, server: EmbeddedServer) -> Iterator[Settings]:
    """Yield the lake with a copy of its catalog, and with further releases that differ in all rows of some tables."""
    database = str(conninfo_to_dict(published.settings.lakehouse_catalog_uri or "")["dbname"])
    with copied_source(server, database) as uri:
        settings = published.settings.model_copy(update={"lakehouse_catalog_uri": uri})
        folder = f"{settings.warehouse}/differences"
        with closing(open_catalog(settings)) as catalog:
            publish_after_emptied(catalog, COMPARED, folder)
        yield settings
    shutil.rmtree(folder.removeprefix("file://"))


def search_outputs(published: PublishedLake, server: EmbeddedServer, scratch: Path) -> tuple[set[str], set[str]]:
    """Require that no output contains a canary; return the searched places, and the folders of the copied rows."""
    source, home = published.source, published.settings.lakehouse_home
    assert len(source.canaries.places) > 150
    (scratch / "printed").write_text(published.output)
    with add_differences(published, server) as settings:
        for command in COMMANDS:
            result = lakehouse(
                settings, *command.split(), *(["--output", str(scratch / "page.html")] * (command == "report"))
            )
            assert result.returncode == 0, result.stderr
            (scratch / f"{command}.txt").write_text(result.stdout + result.stderr)
    printed = (scratch / "diff.txt").read_text()
    assert [text for text in ("(new)", " new users", *COMPARED) if text not in printed] == []
    assert [name for name in OUTPUTS if IP_ADDRESS.search(_without_scripts((scratch / name).read_text()))] == []
    for database in (services.AIRFLOW_DATABASE, services.CATALOG_DATABASE):
        dumped = server.tool("pg_dump", database=database, stdout=subprocess.PIPE).stdout
        (scratch / f"{database}.sql").write_bytes(dumped)

    paths: dict[str, set[str]] = {}
    searched: set[str] = set()
    for folder in (home, scratch):
        for path, content in contents(folder):
            searched |= {path.suffix, path.relative_to(folder).parts[0]}
            canaries = source.canaries.list_columns_in(content)
            canaries |= {name for name in ("password", *COPIED) if getattr(source, name).encode() in content}
            for canary in canaries:
                paths.setdefault(canary, set()).add(str(path.relative_to(folder)))
    copied_to = {Path(item).parts[0] for name in COPIED for item in paths.pop(name)}
    assert paths == {}
    assert {".parquet", ".avro", ".json", ".html"} <= searched
    assert any(b"snapshot_tables" in item.read_bytes() for item in (home / "logs").rglob("*") if item.is_file())
    assert b"rendered_task_instance_fields" in (scratch / f"{services.AIRFLOW_DATABASE}.sql").read_bytes()
    # The server has the shipped sample, without canaries, beside the databases of Airflow and of the catalog.
    return searched, copied_to - {"postgres"}


def _without_scripts(page: str) -> str:
    return re.sub(r"(?s)<script>.*?</script>", "", page)
