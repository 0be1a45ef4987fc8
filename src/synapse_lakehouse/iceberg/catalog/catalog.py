"""One Iceberg catalog, described once, for Spark and for PyIceberg."""

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
"""What the replication tap heard."""
COMPRESSION_PLAN_TABLE: Final = "gold.compression_plan"
"""What compressing rooms of a release would come to, plan after plan."""
COMPRESSION_RUNS_TABLE: Final = "audit.compression_runs"
"""What became of each room that was to be compressed, by the DAG or by hand."""

# Rather one too many: what is hidden can be given, what was shown cannot be taken back.
SECRETS: Final = (
    r"passw|passphrase|secret|token|credential|key|authorization|cookie|signature|connection-string|\bsas\b"
)
"""Regular expression of what is in the names of properties that may hold secrets, in any case."""
LOGIN: Final = r"(?<=://)[^/\s]*@"
"""Regular expression of user and password in a URI."""

PRIVATE_FILE_OPTIONS: Final = {"spark.hadoop.fs.permissions.umask-mode": "077"}
"""Spark configuration under which Hadoop, which gives files rights of its own, gives them to nobody else. Spark-submit
has to know it, too: the first that asks for a file system decides for the whole process."""


def is_unbranched(name: str) -> bool:
    """Whether a table is only ever appended to, on main, and so belongs to no release."""
    return name.startswith("audit.") or name in (COMMANDS_TABLE, COMPRESSION_PLAN_TABLE)


def get_spark_properties(settings: Settings) -> dict[str, str]:
    """Spark configuration under which ``lake.<schema>.<table>`` is the lake. It goes to executors and holds no secret:
    :func:`export_secrets` and ``pgpass`` give those to the driver alone.

    :raises CatalogError: when Spark cannot be told where the catalog is.
    """
    properties = object_store.remove_s3_keys(_properties(settings))
    if uses_rest_catalog(settings):
        # Iceberg's REST catalog takes such a value from the environment of the driver.
        properties |= {name: f"env:{_variable(name)}" for name in _rest_secrets(settings)}
    return _named(properties)


def get_spark_properties_with_secrets(settings: Settings) -> dict[str, str]:
    """The same with all secrets, as a Spark of somebody else needs them.

    :raises CatalogError: when Spark cannot be told where the catalog is.
    """
    properties = _properties(settings)
    if not uses_rest_catalog(settings):
        properties["jdbc.password"] = get_postgres_parameters(settings).get("password", "")
    return _named(properties)


def export_secrets(settings: Settings) -> None:
    """Put the keys of S3 and the secrets of a REST catalog into the environment of the driver that this process starts.

    :raises CatalogError: when the URI of a REST catalog is no URI.
    """
    aws_keys.hide_aws_keys(settings.lakehouse_catalog_properties)
    if (settings.lakehouse_catalog_uri or "").startswith(("http://", "https://")):
        os.environ.update({_variable(name): value for name, value in _rest_secrets(settings).items()})


def remove_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """``properties`` of a catalog for Python workers, which open files: all that are no secrets."""
    return {
        name: value
        for name, value in properties.items()
        if not re.search(SECRETS, name, re.IGNORECASE) and not re.search(LOGIN, value)
    }


def _properties(settings: Settings) -> dict[str, str]:
    """Iceberg's properties of the catalog in Java, without the password of PostgreSQL."""
    properties = {"warehouse": settings.warehouse} | object_store.get_catalog_properties(settings)
    if uses_rest_catalog(settings):
        return properties | {"type": "rest", "uri": parse_rest_uri(settings)}
    where = get_postgres_parameters(settings)
    return properties | {
        "type": "jdbc",
        "uri": catalog_uri.to_jdbc_url(where),
        "jdbc.user": where.get("user", ""),
        "jdbc.schema-version": "V1",
    }


def _rest_secrets(settings: Settings) -> dict[str, str]:
    properties = object_store.remove_s3_keys(_properties(settings))
    return {name: value for name, value in properties.items() if name not in remove_secrets(properties)}


def _variable(name: str) -> str:
    """Variable of the driver's environment that holds the secret property ``name`` of a REST catalog."""
    return "ICEBERG_" + re.sub(r"\W", "_", name).upper()


def _named(properties: Mapping[str, str]) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG_NAME}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
        f"{prefix}.{name}": value for name, value in properties.items()
    }


def get_redaction_pattern() -> str:
    """Regular expression of names and values of its configuration that Spark shows nobody, in logs, events or pages.

    Spark's own one, which knows neither passwords in URIs nor how REST catalogs call their secrets, and more.
    """
    of_catalog = rf"spark\.sql\.catalog\.{CATALOG_NAME}\..*(?:{SECRETS})"
    return f"(?i)secret|password|token|access[.]?key|credential|{of_catalog}|{LOGIN}"


def open_catalog(settings: Settings) -> "Catalog":
    """The same catalog for PyIceberg, which needs no JVM.

    :raises CatalogError: when LAKEHOUSE_CATALOG_URI says no place.
    """
    from pyiceberg.catalog import load_catalog  # takes most of a second, which commands that do without it save

    properties = {"warehouse": settings.warehouse} | object_store.get_catalog_properties(settings)
    if uses_rest_catalog(settings):
        return load_catalog(CATALOG_NAME, type="rest", uri=parse_rest_uri(settings), **properties)
    uri = catalog_uri.to_sqlalchemy_url(get_postgres_parameters(settings))
    return load_catalog(CATALOG_NAME, type="sql", uri=uri, schema_version="v1", **properties)


def uses_rest_catalog(settings: Settings) -> bool:
    """Whether the catalog is a REST one; else it is in PostgreSQL.

    :raises CatalogError: when LAKEHOUSE_CATALOG_URI is of neither kind.
    """
    scheme = (settings.lakehouse_catalog_uri or "").partition("://")[0]
    if scheme not in {"postgresql", "postgres", "http", "https"}:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI must be a postgresql:// URI (JDBC catalog) or an http(s):// one (REST catalog)."
        )
    return scheme in {"http", "https"}


def get_postgres_parameters(settings: Settings) -> dict[str, str]:
    """libpq's parameters of the catalog's PostgreSQL, the password among them.

    :raises CatalogError: when libpq would not understand them.
    """
    return catalog_uri.parse_libpq_uri(str(settings.lakehouse_catalog_uri))


def parse_rest_uri(settings: Settings) -> str:
    """Where the REST catalog is; user and password may be in it.

    :raises CatalogError: when it is no URI.
    """
    uri = str(settings.lakehouse_catalog_uri)
    try:
        parts = urlsplit(uri)
        is_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_place = False
    if not is_place:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI is no http(s):// URI. In its user and password write all but letters and digits as "
            "%40, %2F and so on."
        )
    return uri
