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


def s3_settings(warehouse: str = "s3://lake/warehouse/", **properties: str) -> Settings:
    overrides: dict[str, Any] = {"lakehouse_warehouse": warehouse, "lakehouse_catalog_properties": properties}
    return Settings(_env_file=None, lakehouse_home=Path("home"), **overrides)


def test_one_region_sets_all_s3_properties() -> None:
    properties = object_store.get_catalog_properties(
        s3_settings(**{"client.region": "eu-central-1", "s3.endpoint": "https://s3"})
    )
    assert properties["client.region"] == properties["s3.region"] == "eu-central-1"
    assert properties["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert object_store.get_catalog_properties(s3_settings(**{"io-impl": "another"}))["io-impl"] == "another"
    assert object_store.get_catalog_properties(s3_settings("warehouse", **{"header.x": "1"})) == {"header.x": "1"}


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
        connection.execute(duckdb_reader.create_secret_sql(s3_settings(**properties, **KEYS)))
        ((scope, secret),) = connection.execute("select scope, secret_string from duckdb_secrets()").fetchall()
    parts = dict(option.split("=", 1) for option in secret.split(";"))
    assert scope == ["s3://lake/warehouse/"]
    assert (
        f"{parts.get('endpoint', '')} {parts.get('use_ssl', '')} {parts.get('url_style', '')}".strip()
        == options.strip()
    )


def test_missing_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from outside")
    assert "key_id 'from outside'" in duckdb_reader.create_secret_sql(s3_settings())
    assert "key_id 'key'" in duckdb_reader.create_secret_sql(s3_settings(**KEYS))


def test_shown_settings_contain_no_keys() -> None:
    output = duckdb_reader.create_secret_sql(
        s3_settings(**KEYS, **{"s3.endpoint": "https://k:hidden@s3"}), with_keys=False
    )
    assert "secret'" not in output
    assert "hidden" not in output
    assert "credential_chain" in output


def test_only_the_warehouse_can_be_read() -> None:
    with duckdb_reader.open_duckdb(s3_settings(**KEYS)) as connection:
        for file in ("s3://lake/other/file", "/etc/hostname", "https://s3/lake/warehouse/file"):
            with pytest.raises(duckdb.PermissionException):
                connection.execute(f"from read_blob({quote_literal(file)})")
    gcs_settings = s3_settings().model_copy(update={"lakehouse_warehouse": "gs://lake/warehouse"})
    with pytest.raises(LakeReadError, match="neither a folder nor on S3"):
        duckdb_reader.open_duckdb(gcs_settings)


def test_s3_keys_are_not_passed_to_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "outside", "AWS_SECRET_ACCESS_KEY": "too", "AWS_SESSION_TOKEN": "and this"}
    monkeypatch.setattr(os, "environ", dict(environment))
    for _ in range(2):
        aws_keys.hide_aws_keys({})
        assert os.environ == {name.replace("AWS", "ICEBERG_S3"): value for name, value in environment.items()}
        aws_keys.restore_aws_keys()
        assert os.environ.items() >= environment.items()
    aws_keys.hide_aws_keys(KEYS)
    assert os.environ == {"ICEBERG_S3_ACCESS_KEY_ID": "key", "ICEBERG_S3_SECRET_ACCESS_KEY": "it's secret"}
    assert aws_keys.get_java_properties() == {"aws.accessKeyId": "key", "aws.secretAccessKey": "it's secret"}
    properties = object_store.remove_s3_keys(
        object_store.get_catalog_properties(s3_settings(**KEYS, **{"s3.endpoint": "https://s3"}))
    )
    assert properties.keys() == {"io-impl", "s3.endpoint"}
