"""Open the Iceberg catalog of the lake with PyIceberg, and return its properties for Spark."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import aws_keys, catalog_uri, object_store
from synapse_lakehouse.iceberg.catalog.catalog_uri import CatalogError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_NAME: Final = "lake"
SCHEMAS: Final = ("bronze", "audit", "silver", "gold")
COMMANDS_TABLE: Final = "bronze.replication_commands"
"""Table of the replication commands that the tap received."""
COMPRESSION_PLAN_TABLE: Final = "gold.compression_plan"
"""Table of the state compressor's plans."""
COMPRESSION_RUNS_TABLE: Final = "audit.compression_runs"
"""Table of the state compressor's runs, by the DAG or by hand."""

# The pattern hides too much rather than too little, because a secret that was shown once cannot be hidden again.
SECRETS: Final = (
    r"passw|passphrase|secret|token|credential|key|authorization|cookie|signature|connection-string|\bsas\b"
)
"""Regular expression for names of properties that may contain secrets. It ignores case."""
LOGIN: Final = r"(?<=://)[^/\s]*@"
"""Regular expression of user and password in a URI."""

PRIVATE_FILE_OPTIONS: Final = {"spark.hadoop.fs.permissions.umask-mode": "077"}
"""Spark configuration that restricts the permissions of files to their owner.

Hadoop ignores the process's umask, and reads the option at the first use of a file system, even in Spark-submit."""


def is_unbranched(name: str) -> bool:
    """Return whether a table has no branches. Such a table is append-only, and belongs to no release."""
    return name.startswith("audit.") or name in (COMMANDS_TABLE, COMPRESSION_PLAN_TABLE)


def get_spark_properties(settings: Settings) -> dict[str, str]:
    """Return the Spark configuration of the catalog ``lake``, without secrets, because Spark sends it to executors.

    :func:`export_secrets` and ``pgpass`` pass the secrets only to the driver.

    :raises CatalogError: when Spark cannot use the catalog's URI.
    """
    properties = object_store.remove_s3_keys(_properties(settings))
    if uses_rest_catalog(settings):
        # For a value ``env:NAME``, Iceberg's REST catalog reads this variable of the driver's environment.
        properties |= {name: f"env:{_variable(name)}" for name in _rest_secrets(settings)}
    return _named(properties)


def get_spark_properties_with_secrets(settings: Settings) -> dict[str, str]:
    """Return the Spark configuration of the catalog with all secrets, for Spark sessions outside this project.

    :raises CatalogError: when Spark cannot use the catalog's URI.
    """
    properties = _properties(settings)
    if not uses_rest_catalog(settings):
        properties["jdbc.password"] = get_postgres_parameters(settings).get("password", "")
    return _named(properties)


def export_secrets(settings: Settings) -> None:
    """Set the S3 keys and the secrets of a REST catalog in this process's environment, which its Spark driver inherits.

    :raises CatalogError: when the URI of a REST catalog is not valid.
    """
    aws_keys.hide_aws_keys(settings.lakehouse_catalog_properties)
    if (settings.lakehouse_catalog_uri or "").startswith(("http://", "https://")):
        os.environ.update({_variable(name): value for name, value in _rest_secrets(settings).items()})


def remove_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` of a catalog without secrets, for Python workers that open files."""
    return {
        name: value
        for name, value in properties.items()
        if not re.search(SECRETS, name, re.IGNORECASE) and not re.search(LOGIN, value)
    }


def _properties(settings: Settings) -> dict[str, str]:
    """Properties of the catalog for Iceberg's Java library, without the password of PostgreSQL."""
    properties = {"warehouse": settings.warehouse} | object_store.get_catalog_properties(settings)
    if uses_rest_catalog(settings):
        return properties | {"type": "rest", "uri": parse_rest_uri(settings)}
    parameters = get_postgres_parameters(settings)
    return properties | {
        "type": "jdbc",
        "uri": catalog_uri.to_jdbc_url(parameters),
        "jdbc.user": parameters.get("user", ""),
        "jdbc.schema-version": "V1",
    }


def _rest_secrets(settings: Settings) -> dict[str, str]:
    properties = object_store.remove_s3_keys(_properties(settings))
    return {name: value for name, value in properties.items() if name not in remove_secrets(properties)}


def _variable(name: str) -> str:
    """Return the driver's environment variable for one secret property of a REST catalog."""
    return "ICEBERG_" + re.sub(r"\W", "_", name).upper()


def _named(properties: Mapping[str, str]) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG_NAME}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
        f"{prefix}.{name}": value for name, value in properties.items()
    }


def get_redaction_pattern() -> str:
    """Return a regular expression for configuration names and values that Spark redacts in logs, events and its UI.

    It covers Spark's default, passwords in URIs, and secrets of REST catalogs.
    """
    of_catalog = rf"spark\.sql\.catalog\.{CATALOG_NAME}\..*(?:{SECRETS})"
    return f"(?i)secret|password|token|access[.]?key|credential|{of_catalog}|{LOGIN}"


def open_catalog(settings: Settings) -> "Catalog":
    """Return the catalog for PyIceberg, which needs no JVM.

    PyIceberg's configuration files and PYICEBERG_CATALOG__* do not apply. They describe the operator's own catalogs.

    :raises CatalogError: when LAKEHOUSE_CATALOG_URI is not valid.
    """
    # These imports take most of a second.
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {"warehouse": settings.warehouse} | object_store.get_catalog_properties(settings)
    if uses_rest_catalog(settings):
        return RestCatalog(CATALOG_NAME, **properties | {"type": "rest", "uri": parse_rest_uri(settings)})
    uri = catalog_uri.to_sqlalchemy_url({"options": catalog_uri.NO_OPTIONS} | get_postgres_parameters(settings))
    return SqlCatalog(CATALOG_NAME, **properties | {"type": "sql", "uri": uri, "schema_version": "v1"})


def uses_rest_catalog(settings: Settings) -> bool:
    """Return whether the catalog is a REST catalog. If not, it is in PostgreSQL.

    :raises CatalogError: when LAKEHOUSE_CATALOG_URI has another scheme.
    """
    scheme = (settings.lakehouse_catalog_uri or "").partition("://")[0]
    if scheme not in {"postgresql", "postgres", "http", "https"}:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI must be a postgresql:// URI (JDBC catalog) or an http(s):// URI (REST catalog)."
        )
    return scheme in {"http", "https"}


def get_postgres_parameters(settings: Settings) -> dict[str, str]:
    """Return the libpq parameters of the catalog's PostgreSQL, including the password.

    :raises CatalogError: when libpq cannot parse the URI.
    """
    return catalog_uri.parse_libpq_uri(str(settings.lakehouse_catalog_uri))


def parse_rest_uri(settings: Settings) -> str:
    """Return the URI of the REST catalog; it may contain a user and a password.

    :raises CatalogError: when the URI is not valid.
    """
    uri = str(settings.lakehouse_catalog_uri)
    try:
        parts = urlsplit(uri)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI is not a valid http(s):// URI. Percent-encode all characters of its user and "
            "password except letters and digits: %40 for @, %2F for /."
        )
    return uri
