"""Spark and PyIceberg connect to the catalog that LAKEHOUSE_CATALOG_URI names."""

import os
import re
from pathlib import Path

import pytest
from sqlalchemy import make_url

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import catalog_uri, pgpass
from synapse_lakehouse.iceberg.catalog.catalog import (
    export_secrets,
    get_redaction_pattern,
    get_spark_properties,
    get_spark_properties_with_secrets,
    open_catalog,
    remove_secrets,
)
from synapse_lakehouse.iceberg.catalog.catalog_uri import CatalogError
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError


def settings_for(uri: str) -> Settings:
    return Settings(_env_file=None, lakehouse_catalog_uri=uri, lakehouse_warehouse="s3://lake/warehouse")


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("u:p@h/d", "h:5432/d"),
        ("u:p@h/d?sslmode=verify-full&sslrootcert=/ca.pem", "h:5432/d?sslmode=verify-full&sslrootcert=%2Fca.pem"),
        ("u@h/d?connect_timeout=3&application_name=l%20h", "h:5432/d?ApplicationName=l%20h&connectTimeout=3"),
        ("u@h/d?options=-c%20search_path%3Dx", "h:5432/d?options=-c%20search_path%3Dx"),
        ("h1:1,h2:2/d?target_session_attrs=read-write", "h1:1,h2:2/d?targetServerType=primary"),
        ("u@/d?host=h1,h2&port=7", "h1:7,h2:7/d"),
        ("u@[::1]:5/d%20e", "[::1]:5/d%20e"),
        ("u@h", "h:5432/u"),
    ],
)
def test_jdbc_gets_the_parameters_of_libpq(query: str, options: str) -> None:
    assert (
        get_spark_properties(settings_for(f"postgresql://{query}"))["spark.sql.catalog.lake.uri"]
        == f"jdbc:postgresql://{options}"
    )


@pytest.mark.parametrize(("query", "password"), [("p%40%2F%23%25", "p@/#%"), ("pa#ss", "pa#ss"), ("pa?s:s", "pa?s:s")])
def test_a_password_is_decoded_for_each_client(query: str, password: str) -> None:
    uri = f"postgresql://u:{query}@h:5432/d?sslmode=require"
    assert password not in " ".join(get_spark_properties(settings_for(uri)).values())
    assert get_spark_properties_with_secrets(settings_for(uri))["spark.sql.catalog.lake.jdbc.password"] == password
    file = pgpass.write_pgpass_file(catalog_uri.parse_libpq_uri(uri))
    assert file
    *_, line = Path(file).read_text().splitlines()
    assert line == "*:*:d:u:" + password.replace(":", r"\:")
    alchemy = make_url(catalog_uri.to_sqlalchemy_url(catalog_uri.parse_libpq_uri(uri)))
    _, arguments = alchemy.get_dialect()().create_connect_args(alchemy)
    assert arguments == {"user": "u", "password": password, "host": "h", "port": "5432", "dbname": "d"} | {
        "sslmode": "require"
    }


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:ses/ame@h/d",
        "postgresql://u:12/sesame@h/d",
        "postgresql://u:ses@ame@h/d",
        "postgresql://u:ses%zzame@h/d",
        "postgresql://u:sesame@h/d?nonsense=1",
        "postgresql://u:sesame@h:port/d",
        "https://u:ses/ame@h/d",
        "https://u:[sesame@h/d",
        "mysql://u:sesame@h/d",
    ],
)
def test_an_invalid_uri_is_refused_and_not_quoted(uri: str) -> None:
    for function, error in (
        (get_spark_properties, CatalogError),
        (open_catalog, CatalogError),
        (list_catalog_entries, LakeReadError),
    ):
        with pytest.raises(error, match="LAKEHOUSE_CATALOG_URI") as error_info:
            function(settings_for(uri))
        assert "ame@" not in str(error_info.value)
        assert "ses" not in str(error_info.value)
        assert error_info.value.__cause__ is None


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("postgresql:///d?host=/run/postgresql", "socket"),
        ("postgresql:///d", "host"),
        ("postgresql://u@h/d?sslmode=require&sslcrl=/crl&hostaddr=::1", "hostaddr, sslcrl"),
    ],
)
def test_parameters_that_spark_lacks_are_refused(uri: str, reason: str) -> None:
    with pytest.raises(CatalogError, match=reason):
        get_spark_properties(settings_for(uri))


def test_spark_shows_no_secret_of_the_catalog() -> None:
    secrets = {"credential": "id:sesame", "header.Authorization": "Basic sesame", "s3.endpoint": "https://k:sesame@s3"}
    visible = {"s3.region": "eu-central-1", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
    for uri in ("https://u:sesame@rest.example.org/api", "postgresql://u:sesame@h/d"):
        settings = settings_for(uri).model_copy(update={"lakehouse_catalog_properties": secrets | visible})
        properties = get_spark_properties_with_secrets(settings)
        hidden = {
            key
            for key, value in properties.items()
            if re.search(get_redaction_pattern(), key) or re.search(get_redaction_pattern(), value)
        }
        assert {key for key, value in properties.items() if "sesame" in value} <= hidden
        assert {f"spark.sql.catalog.lake.{key}" for key in visible}.isdisjoint(hidden)


def test_spark_and_its_workers_get_no_secret_of_a_rest_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"credential": "id:sesame", "header.Authorization": "Basic sesame", "s3.secret-access-key": "sesame"}
    settings = settings_for("https://u:sesame@rest.example.org/api").model_copy(
        update={"lakehouse_catalog_properties": secrets | {"s3.region": "eu-central-1"}}
    )
    environment: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", environment)
    export_secrets(settings)
    properties = get_spark_properties(settings)
    assert "sesame" not in " ".join(properties.values())
    for name in ("uri", "credential", "header.Authorization"):
        assert "sesame" in environment[properties[f"spark.sql.catalog.lake.{name}"].removeprefix("env:")]
    assert environment["ICEBERG_S3_SECRET_ACCESS_KEY"] == "sesame"
    assert properties["spark.sql.catalog.lake.s3.region"] == "eu-central-1"
    workers = remove_secrets({"uri": "https://u:sesame@rest.example.org"} | settings.lakehouse_catalog_properties)
    assert workers == {"s3.region": "eu-central-1"}
