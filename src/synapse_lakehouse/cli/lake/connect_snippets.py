"""The configurations that ``lakehouse connect`` prints, by tool."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import catalog_uri, object_store
from synapse_lakehouse.iceberg.catalog.catalog import (
    CATALOG_NAME,
    LOGIN,
    SCHEMAS,
    SECRETS,
    get_postgres_parameters,
    get_spark_properties_with_secrets,
    is_unbranched,
    parse_rest_uri,
    uses_rest_catalog,
)
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal, quote_table_name
from synapse_lakehouse.java import jars

_SECRET: Final = re.compile(SECRETS, re.IGNORECASE)
_LOGIN: Final = re.compile(LOGIN)
_TRINO_S3: Final = {
    "s3.endpoint": "s3.endpoint",
    "client.region": "s3.region",
    "s3.path-style-access": "s3.path-style-access",
    "s3.access-key-id": "s3.aws-access-key",
    "s3.secret-access-key": "s3.aws-secret-key",
}


class Tool(StrEnum):
    """Supported tools."""

    SPARK = "spark"
    DUCKDB = "duckdb"
    PYICEBERG = "pyiceberg"
    TRINO = "trino"


def render_snippet(tool: Tool, connection: DuckDBPyConnection, settings: Settings, release: Release) -> str:
    """Return a configuration with which ``tool`` reads ``release``, with passwords from the environment."""
    if tool is Tool.DUCKDB:
        return _duckdb(connection, settings, release)
    return {Tool.SPARK: _spark, Tool.PYICEBERG: _pyiceberg, Tool.TRINO: _trino}[tool](settings, release)


def _duckdb(connection: DuckDBPyConnection, settings: Settings, release: Release) -> str:
    """Return SQL of views on the present metadata files. The views need neither the catalog nor a password."""
    unbranched = [name for name in list_catalog_entries(settings) if is_unbranched(name)]
    names = sorted({*release.tables, *release.views, *unbranched})
    return "\n".join(
        [
            f"-- The lake at release {release.number}, for DuckDB 1.5 (`duckdb -init FILE`, or execute() in Python).",
            "-- On another machine: install avro; install iceberg; load iceberg;",
            *(f"load {quote_literal(str(duckdb_reader.find_extension_file(name)))};" for name in ("avro", "iceberg")),
            *(_on_s3(settings) if object_store.uses_s3(settings) else []),
            *(f"create schema if not exists {schema};" for schema in SCHEMAS),
            *(f"{macro};" for macro in duckdb_reader.SPARK_FUNCTION_MACROS),
            *(
                f"create or replace view {quote_table_name(name)} as {sql};"
                for name, sql in duckdb_reader.iterate_view_definitions(connection, settings, release, names)
            ),
            f"-- select * from {_example(release)} limit 10;",  # noqa: S608
        ]
    )


def _on_s3(settings: Settings) -> list[str]:
    return [
        "-- The warehouse is on S3. The keys come from the environment or from ~/.aws:",
        "install httpfs; load httpfs; install aws; load aws;",
        f"{duckdb_reader.create_secret_sql(settings, with_keys=False)};",
    ]


def _spark(settings: Settings, release: Release) -> str:
    extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    properties = {"spark.sql.extensions": extensions} | _bare(get_spark_properties_with_secrets(settings))
    # Without this setting, spark-sql creates a Hive metastore in the current folder.
    properties["spark.sql.catalogImplementation"] = "in-memory"
    packages = ",".join([*jars.REQUIRED_PACKAGES, *jars.parse_packages(settings.lakehouse_spark_packages)])
    name = _example(release)
    return "\n".join(
        [
            f"# The lake for Spark 4.1 (also as spark-shell, pyspark, spark-submit). {_secrets(settings, properties)}",
            # All users of a machine can read the arguments of its processes.
            "(umask 077; cat > lake.conf) <<END",
            *(f"{key} {_in_shell(key, value)}" for key, value in sorted(properties.items())),
            "END",
            f"spark-sql --packages {packages} --properties-file lake.conf",
            "",
            f"# At release {release.number}: SELECT * FROM lake.{name} VERSION AS OF {release.tables[name]};",  # noqa: S608
            f"# Other tables: SELECT tables FROM lake.audit.releases WHERE release = {release.number};",  # noqa: S608
        ]
    )


def _pyiceberg(settings: Settings, release: Release) -> str:
    properties = _bare({"warehouse": settings.warehouse} | settings.lakehouse_catalog_properties)
    if uses_rest_catalog(settings):
        properties |= _bare({"type": "rest", "uri": parse_rest_uri(settings)})
    else:
        parameters = {
            name: value for name, value in get_postgres_parameters(settings).items() if "password" not in name
        }
        properties |= {"type": "sql", "uri": catalog_uri.to_sqlalchemy_url(parameters)}
    lines = [f"    {key!r}: {_in_python(key, value)}," for key, value in sorted(properties.items())]
    name = _example(release)
    return "\n".join(
        [
            f"# The lake for Python with pyiceberg[sql-postgres,pyarrow]. {_secrets(settings, properties)}",
            *(["import os"] if any(map(_SECRET.search, properties)) else []),
            "from pyiceberg.catalog import load_catalog",
            "",
            f"catalog = load_catalog({CATALOG_NAME!r}, **{{",
            *lines,
            "})",
            f"# Release {release.number}: snapshot id by table.",
            "release = {",
            *(f"    {table!r}: {snapshot}," for table, snapshot in sorted(release.tables.items())),
            "}",
            f"name = {name!r}",
            "print(catalog.load_table(name).scan(snapshot_id=release[name], limit=10).to_arrow())",
        ]
    )


def _trino(settings: Settings, release: Release) -> str:
    if uses_rest_catalog(settings):
        catalog = {
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": parse_rest_uri(settings),
            "iceberg.rest-catalog.warehouse": settings.warehouse,
        }
    else:
        parameters = get_postgres_parameters(settings)
        catalog = {
            "iceberg.catalog.type": "jdbc",
            "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
            "iceberg.jdbc-catalog.connection-url": catalog_uri.to_jdbc_url(parameters),
            "iceberg.jdbc-catalog.connection-user": parameters.get("user", ""),
            "iceberg.jdbc-catalog.connection-password": "${ENV:PGPASSWORD}",
            "iceberg.jdbc-catalog.catalog-name": CATALOG_NAME,
            "iceberg.jdbc-catalog.default-warehouse-dir": settings.warehouse,
            "iceberg.jdbc-catalog.schema-version": "V1",
        }
    name = _example(release)
    return "\n".join(
        [
            f"# etc/catalog/{CATALOG_NAME}.properties on every Trino node. {_secrets(settings, catalog)}",
            "connector.name=iceberg",
            *(f"{key}={value}" for key, value in _bare(catalog | _trino_files(settings)).items()),
            f"# At release {release.number}: SELECT * FROM lake.{name} FOR VERSION AS OF {release.tables[name]};",  # noqa: S608
            f"# Other tables: SELECT tables FROM lake.audit.releases WHERE release = {release.number};",  # noqa: S608
        ]
    )


def _trino_files(settings: Settings) -> dict[str, str]:
    if settings.warehouse.startswith("file:"):
        return {"fs.native-local.enabled": "true", "local.location": "/"}
    properties = settings.lakehouse_catalog_properties
    return {"fs.native-s3.enabled": "true"} | {
        trino_name: f"${{ENV:{_variable(name)}}}" if _SECRET.search(name) else properties[name]
        for name, trino_name in _TRINO_S3.items()
        if name in properties
    }


def _example(release: Release) -> str:
    return "gold.events" if "gold.events" in release.tables else min(release.tables)


def _bare(properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` without the users and passwords of URIs."""
    return {key: _LOGIN.sub("", value) for key, value in properties.items()}


def _secrets(settings: Settings, properties: Mapping[str, str]) -> str:
    """Describe the environment variables of the snippet: secret properties, and PGPASSWORD for PostgreSQL."""
    variables = {_variable(key) for key in properties if _SECRET.search(key)}
    variables |= {"PGPASSWORD"} if any("postgresql" in value for value in properties.values()) else set()
    needed = [f"Secrets come from the environment: {', '.join(sorted(variables))}."] if variables else []
    statements = [
        *settings.lakehouse_catalog_properties.values(),
        *([parse_rest_uri(settings)] if uses_rest_catalog(settings) else []),
    ]
    needed += ["Users and passwords were removed from URIs: add them."] if any(map(_LOGIN.search, statements)) else []
    return " ".join(needed) or "It needs no secrets."


def _variable(key: str) -> str:
    """Return the environment variable of the secret ``key``."""
    if key.endswith(("jdbc.password", "connection-password")):
        return "PGPASSWORD"
    return re.sub(r"\W", "_", key).upper()


def _in_shell(key: str, value: str) -> str:
    if _SECRET.search(key):
        return f"${_variable(key)}"
    # The shell halves the backslashes, and then Java halves them again.
    return re.sub(r"([\\$`])", r"\\\1", value.replace("\\", r"\\"))


def _in_python(key: str, value: str) -> str:
    return f"os.environ[{_variable(key)!r}]" if _SECRET.search(key) else repr(value)
