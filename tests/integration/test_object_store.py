"""A warehouse on S3, on a server that keeps all objects in memory."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from sample.environment import PROJECT, python_with
from sample.processes import free_ports, started, wait_until
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import Published, lakehouse
from tests.support.dataframe_compare import contents, release_of

pytestmark = pytest.mark.heavy

AWS = (
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
    "@sha256:dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
)
SECRET = "not-to-be-shown"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """Where S3 is spoken, with a bucket ``lake``."""
    python = python_with("moto", "5.2.5", PROJECT / ".lakehouse" / "moto-venv", extras="[server]")
    (port,) = free_ports(1)
    log, url = tmp_path / "s3.log", f"http://127.0.0.1:{port}"
    command: list[str | Path] = [python.with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with started("moto_server", command, log, tmp_path) as server:
        wait_until(lambda: _has_bucket(url), server, "moto_server", log, seconds=60)
        yield url


def _has_bucket(url: str) -> bool:
    try:
        with urlopen(Request(f"{url}/lake", method="PUT"), timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_lake_on_s3_has_the_same_content_and_is_read_the_same(
    published: Published, new_lake: Callable[..., Settings], endpoint: str
) -> None:
    release = release_of(published.settings)
    with duckdb_reader.open_duckdb(published.settings) as in_lake:
        duckdb_reader.create_views(in_lake, published.settings, release, ["silver.retention_time"])
        ((as_of,),) = in_lake.execute("select as_of from silver.retention_time").fetchall()
    settings = new_lake(
        synapse_dsn=published.settings.synapse_dsn,
        lakehouse_as_of=datetime.fromtimestamp(as_of / 1000, UTC),
        lakehouse_warehouse="s3://lake/warehouse",
        lakehouse_spark_packages=AWS,
        lakehouse_catalog_properties={
            "s3.endpoint": endpoint, "s3.path-style-access": "true", "client.region": "us-east-1",
            "s3.access-key-id": "key", "s3.secret-access-key": SECRET,
        },
    )  # fmt: skip

    result = lakehouse(settings, "run", "--date", f"{release.interval_start:%Y-%m-%d}")

    assert result.returncode == 0, result.stdout + result.stderr
    new_release = release_of(settings)
    assert contents(settings, new_release.tables) == contents(published.settings, release.tables)
    reported = result.stdout + result.stderr
    for command in (
        ["releases"],
        ["positions"],
        ["branches"],
        ["doctor"],
        ["query", "select count(*) from gold.events"],
    ):
        answer = lakehouse(settings, *command)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        reported += answer.stdout + answer.stderr
    (event,) = json.loads(
        lakehouse(settings, "query", "select min(event_id) as id from gold.events", "--format", "json").stdout
    )
    questions = (["who-can-see", event["id"]], ["state-at", event["id"]])
    for question in questions:
        assert lakehouse(settings, *question).stdout == lakehouse(published.settings, *question).stdout
    for tool in ("duckdb", "spark", "pyiceberg", "trino"):
        reported += lakehouse(settings, "connect", tool).stdout
    assert SECRET not in reported
