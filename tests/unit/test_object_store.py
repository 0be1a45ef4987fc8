"""Settings for a warehouse on S3, as Spark, PyIceberg and DuckDB need them."""

import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import aws_keys, object_store
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "it's secret"}


def on_s3(warehouse: str = "s3://lake/warehouse/", **properties: str) -> Settings:
    overrides: dict[str, Any] = {"lakehouse_warehouse": warehouse, "lakehouse_catalog_properties": properties}
    return Settings(_env_file=None, lakehouse_home=Path("home"), **overrides)


def test_one_region_sets_all_s3_properties() -> None:
    reported = object_store.get_catalog_properties(
        on_s3(**{"client.region": "eu-central-1", "s3.endpoint": "https://s3"})
    )
    assert reported["client.region"] == reported["s3.region"] == "eu-central-1"
    assert reported["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert object_store.get_catalog_properties(on_s3(**{"io-impl": "another"}))["io-impl"] == "another"
    assert object_store.get_catalog_properties(on_s3("warehouse", **{"header.x": "1"})) == {"header.x": "1"}


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({"s3.endpoint": "http://minio:9000", "s3.path-style-access": "true"}, "minio:9000 false path"),
        ({"s3.endpoint": "s3.example.org"}, "s3.example.org true "),
        ({}, "  "),
    ],
)
def test_duckdb_uses_the_properties(properties: dict[str, str], options: str) -> None:
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"load {quote_literal(str(duckdb_reader.find_extension_file('httpfs')))}")
        connection.execute(duckdb_reader.create_secret_sql(on_s3(**properties, **KEYS)))
        ((scope, reported),) = connection.execute("select scope, secret_string from duckdb_secrets()").fetchall()
    actual = dict(item.split("=", 1) for item in reported.split(";"))
    assert scope == ["s3://lake/warehouse/"]
    assert (
        f"{actual.get('endpoint', '')} {actual.get('use_ssl', '')} {actual.get('url_style', '')}".strip()
        == options.strip()
    )


def test_keys_that_are_not_set_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from outside")
    assert "key_id 'from outside'" in duckdb_reader.create_secret_sql(on_s3())
    assert "key_id 'key'" in duckdb_reader.create_secret_sql(on_s3(**KEYS))


def test_shown_settings_contain_no_keys() -> None:
    output = duckdb_reader.create_secret_sql(on_s3(**KEYS, **{"s3.endpoint": "https://k:hidden@s3"}), with_keys=False)
    assert "secret'" not in output
    assert "hidden" not in output
    assert "credential_chain" in output


def test_nothing_but_the_warehouse_is_read() -> None:
    with duckdb_reader.open_duckdb(on_s3(**KEYS)) as connection:
        for file in ("s3://lake/other/file", "/etc/hostname", "https://s3/lake/warehouse/file"):
            with pytest.raises(duckdb.PermissionException):
                connection.execute(f"from read_blob({quote_literal(file)})")
    elsewhere = on_s3().model_copy(update={"lakehouse_warehouse": "gs://lake/warehouse"})
    with pytest.raises(LakeReadError, match="neither a folder nor on S3"):
        duckdb_reader.open_duckdb(elsewhere)


def test_s3_keys_are_not_passed_to_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = {"AWS_ACCESS_KEY_ID": "outside", "AWS_SECRET_ACCESS_KEY": "too", "AWS_SESSION_TOKEN": "and this"}
    monkeypatch.setattr(os, "environ", dict(outside))
    for _ in range(2):
        aws_keys.hide_aws_keys({})
        assert os.environ == {name.replace("AWS", "ICEBERG_S3"): value for name, value in outside.items()}
        aws_keys.restore_aws_keys()
        assert os.environ.items() >= outside.items()
    aws_keys.hide_aws_keys(KEYS)
    assert os.environ == {"ICEBERG_S3_ACCESS_KEY_ID": "key", "ICEBERG_S3_SECRET_ACCESS_KEY": "it's secret"}
    assert aws_keys.get_java_properties() == {"aws.accessKeyId": "key", "aws.secretAccessKey": "it's secret"}
    reported = object_store.remove_s3_keys(
        object_store.get_catalog_properties(on_s3(**KEYS, **{"s3.endpoint": "https://s3"}))
    )
    assert reported.keys() == {"io-impl", "s3.endpoint"}
