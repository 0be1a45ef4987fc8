"""A lake with a warehouse on S3 has the content of a local lake, and no output contains its secret key."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import PublishedLake, lakehouse
from tests.support.dataframe_compare import contents, release_of
from tests.support.object_store import SECRET, s3_warehouse

pytestmark = pytest.mark.heavy


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Yield settings of a warehouse on S3."""
    with s3_warehouse(tmp_path) as settings:
        yield settings


def test_a_lake_on_s3_has_the_same_content_and_is_read_the_same(
    published: PublishedLake, new_lake: Callable[..., Settings], warehouse: dict[str, Any]
) -> None:
    release = release_of(published.settings)
    with duckdb_reader.open_duckdb(published.settings) as connection:
        duckdb_reader.create_views(connection, published.settings, release, ["silver.retention_time"])
        ((as_of,),) = connection.execute("select as_of from silver.retention_time").fetchall()
    settings = new_lake(
        synapse_dsn=published.settings.synapse_dsn,
        lakehouse_as_of=datetime.fromtimestamp(as_of / 1000, UTC),
        **warehouse,
    )

    result = lakehouse(settings, "run", "--date", f"{release.interval_start:%Y-%m-%d}")

    assert result.returncode == 0, result.stdout + result.stderr
    new_release = release_of(settings)
    assert contents(settings, new_release.tables) == contents(published.settings, release.tables)
    output = result.stdout + result.stderr
    for command in (
        ["releases"],
        ["positions"],
        ["branches"],
        ["doctor"],
        ["query", "select count(*) from gold.events"],
    ):
        result = lakehouse(settings, *command)
        assert result.returncode == 0, result.stdout + result.stderr
        output += result.stdout + result.stderr
    (event,) = json.loads(
        lakehouse(settings, "query", "select min(event_id) as id from gold.events", "--format", "json").stdout
    )
    for arguments in (["who-can-see", event["id"]], ["state-at", event["id"]]):
        assert lakehouse(settings, *arguments).stdout == lakehouse(published.settings, *arguments).stdout
    for tool in ("duckdb", "spark", "pyiceberg", "trino"):
        output += lakehouse(settings, "connect", tool).stdout
    assert SECRET not in output
