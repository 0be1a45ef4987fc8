"""What the catalogue does not list leaves the source in no form: all that a run leaves behind is searched."""

import secrets
import subprocess
import traceback
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded import services
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.lake.tables import arrow_schema
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.connection import conninfo
from synapse_lakehouse.source.errors import ReadFailed
from synapse_lakehouse.source.projection import select
from synapse_lakehouse.source.read import Chunk, copy_chunks
from synapse_lakehouse.source.snapshot import exported
from tests.canaries import contents
from tests.conftest import Published

CANARY = secrets.token_hex(12)


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


def test_canaries_are_found_nowhere(published: Published, server: Server, tmp_path: Path) -> None:
    source, home = published.source, published.settings.lakehouse_home
    assert len(source.canaries.places) > 150
    (tmp_path / "printed").write_text(published.output)
    for database in (services.AIRFLOW_DATABASE, services.CATALOG_DATABASE):
        dumped = server.tool("pg_dump", database=database, stdout=subprocess.PIPE).stdout
        (tmp_path / f"{database}.sql").write_bytes(dumped)

    found: dict[str, set[str]] = {}
    searched: set[str] = set()
    for folder in (home, tmp_path):
        for path, content in contents(folder):
            searched |= {path.suffix, path.relative_to(folder).parts[0]}
            places = source.canaries.found(content)
            places |= {name for name in ("password", "copied") if getattr(source, name).encode() in content}
            for place in places:
                found.setdefault(place, set()).add(str(path.relative_to(folder)))
    # The server has the shipped sample, without canaries, beside the databases of Airflow and of the catalog.
    assert {Path(one).parts[0] for one in found.pop("copied")} - {"postgres"} == {"warehouse"}
    assert found == {}
    assert {".parquet", ".avro", ".json", ".html"} <= searched
    assert {"logs", "postgres", "spark-events", "data_docs", "dbt", "printed"} <= searched
    for name, words in (("spark-events", b"SparkListenerTaskEnd"), ("logs", b"snapshot_tables")):
        assert any(words in one.read_bytes() for one in (home / name).rglob("*") if one.is_file())
    assert b"rendered_task_instance_fields" in (tmp_path / f"{services.AIRFLOW_DATABASE}.sql").read_bytes()
