"""One Iceberg catalog, described once, for Spark and for PyIceberg."""

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from synapse_lakehouse.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAME: Final = "lake"
SCHEMAS: Final = ("bronze", "audit", "silver", "gold")
COMMANDS: Final = "bronze.replication_commands"
"""What the replication tap heard."""
PLAN: Final = "gold.compression_plan"
"""What compressing rooms of a release would come to, plan after plan."""
COMPRESSED: Final = "audit.compression_runs"
"""What became of each room that was to be compressed, by the DAG or by hand."""


def is_unbranched(name: str) -> bool:
    """Whether a table is only ever appended to, on main, and so belongs to no release."""
    return name.startswith("audit.") or name in (COMMANDS, PLAN)


class CatalogError(ValueError):
    """The catalog's URI is missing or not of a kind that the lakehouse can use."""


def spark_properties(settings: Settings) -> dict[str, str]:
    """Spark configuration under which ``lake.<schema>.<table>`` is the lake."""
    prefix = f"spark.sql.catalog.{NAME}"
    properties = {"warehouse": settings.warehouse} | settings.lakehouse_catalog_properties
    uri = _uri(settings)
    if _is_rest(uri):
        properties |= {"type": "rest", "uri": uri}
    else:
        parts = urlsplit(uri)
        properties |= {
            "type": "jdbc",
            "uri": f"jdbc:postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}",
            "jdbc.user": unquote(parts.username or ""),
            "jdbc.password": unquote(parts.password or ""),
            "jdbc.schema-version": "V1",
        }
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
        f"{prefix}.{name}": value for name, value in properties.items()
    }


def pyiceberg_catalog(settings: Settings) -> "Catalog":
    """The same catalog for PyIceberg, which needs no JVM."""
    from pyiceberg.catalog import load_catalog  # takes most of a second, which commands that do without it save

    uri = _uri(settings)
    properties = {"warehouse": settings.warehouse} | settings.lakehouse_catalog_properties
    if _is_rest(uri):
        return load_catalog(NAME, type="rest", uri=uri, **properties)
    parts = urlsplit(uri)
    return load_catalog(
        NAME,
        type="sql",
        uri=parts._replace(scheme="postgresql+psycopg2").geturl(),
        schema_version="v1",
        **properties,
    )


def _uri(settings: Settings) -> str:
    uri = settings.lakehouse_catalog_uri
    if not uri or urlsplit(uri).scheme not in {"postgresql", "postgres", "http", "https"}:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI must be a postgresql:// URI (JDBC catalog) or an http(s):// one (REST catalog)."
        )
    return uri


def _is_rest(uri: str) -> bool:
    return urlsplit(uri).scheme in {"http", "https"}
