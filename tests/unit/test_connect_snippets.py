"""``lakehouse connect`` for catalogs and properties that tests cannot connect to."""

from pathlib import Path

import duckdb
import pytest

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli.lake import connect_snippets
from synapse_lakehouse.cli.lake.connect_snippets import Tool
from synapse_lakehouse.config.settings import Settings
from tests.unit.test_cli import NOON

TOOLS = [Tool.SPARK, Tool.PYICEBERG, Tool.TRINO]
RELEASE = Release(
    1, "run", NOON, NOON, "run_1", "release_1", "example.org", {"gold.events": 11}, {}, {}, 1, 0, NOON, [], NOON
)
POSTGRES = "postgresql://reader:secret-word@db.example.org/iceberg?sslmode=verify-full&sslkey=/etc/key.pk8"


def render(tool: Tool, uri: str, **properties: str) -> str:
    settings = Settings(
        _env_file=None,
        lakehouse_catalog_uri=uri,
        lakehouse_catalog_properties=properties,
        lakehouse_warehouse="s3://lake/warehouse",
        lakehouse_home=Path("home"),
    )
    with duckdb.connect() as connection:
        return connect_snippets.render_snippet(tool, connection, settings, RELEASE)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_login_in_a_uri_is_omitted_with_a_note(tool: Tool) -> None:
    snippet = render(
        tool, "https://reader:secret-word@rest.example.org/api", **{"s3.endpoint": "https://k:secret-word@s3"}
    )
    assert "secret-word" not in snippet
    assert "https://rest.example.org/api" in snippet
    assert "Users and passwords" in snippet
    assert "It needs no secrets." in render(tool, "https://rest.example.org/api")


@pytest.mark.parametrize(
    "key",
    [
        "adls.auth.shared-key.account.key",
        "adls.connection-string",
        "adls.sas-token.lake",
        "header.Authorization",
        "rest.auth.basic.password",
        "s3.sse.key",
    ],
)
@pytest.mark.parametrize("tool", TOOLS)
def test_secrets_come_from_the_environment(tool: Tool, key: str) -> None:
    snippet = render(tool, "https://rest.example.org", **{key: "secret-word"})
    assert "secret-word" not in snippet
    if tool is not Tool.TRINO:
        assert key.replace(".", "_").replace("-", "_").upper() in snippet
        assert "PGPASSWORD" not in snippet


def test_snippets_have_the_connection_parameters() -> None:
    spark, pyiceberg, trino = (render(tool, POSTGRES) for tool in TOOLS)
    for snippet in (spark, trino):
        assert "jdbc:postgresql://db.example.org:5432/iceberg?sslkey=%2Fetc%2Fkey.pk8&sslmode=verify-full" in snippet
    assert (
        "postgresql+psycopg2://reader@/iceberg?host=db.example.org&sslmode=verify-full&sslkey=%2Fetc%2Fkey.pk8"
        in pyiceberg
    )
    for snippet in (spark, pyiceberg, trino):
        assert "secret-word" not in snippet
        assert "Secrets come from the environment: PGPASSWORD." in snippet
