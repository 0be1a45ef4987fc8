"""List the tables and views of the catalog with their metadata files.

PyIceberg is slow to import, so it is used only for a REST catalog. psycopg2 is imported ten times as fast as psycopg.
"""

from contextlib import closing
from dataclasses import dataclass

import psycopg2  # type: ignore[import-untyped]

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import CATALOG_NAME, SCHEMAS, get_postgres_parameters, uses_rest_catalog
from synapse_lakehouse.iceberg.catalog.catalog_uri import NO_OPTIONS, CatalogError
from synapse_lakehouse.iceberg.read.errors import LakeReadError


@dataclass(frozen=True)
class CatalogEntry:
    """A table or view of the catalog. ``location`` is its metadata file."""

    location: str
    is_view: bool


def list_catalog_entries(settings: Settings) -> dict[str, CatalogEntry]:
    """Return the tables and views of the lake by name (``gold.events``); empty for a new catalog.

    :raises LakeReadError: when the catalog cannot be reached.
    """
    try:
        if uses_rest_catalog(settings):
            return _rest_entries(settings)
        parameters = {"connect_timeout": 10, "options": NO_OPTIONS} | get_postgres_parameters(settings)
    except CatalogError as error:
        raise LakeReadError(str(error)) from None
    try:
        with closing(psycopg2.connect(**parameters)) as catalog, catalog.cursor() as cursor:
            cursor.execute(
                "select table_namespace || '.' || table_name, metadata_location, to_jsonb(t) ->> 'iceberg_type'"
                " from iceberg_tables t where catalog_name = %s and table_namespace = any(%s)",
                [CATALOG_NAME, list(SCHEMAS)],
            )
            rows = cursor.fetchall()
    except psycopg2.errors.UndefinedTable:
        return {}
    except psycopg2.Error as error:
        raise LakeReadError(
            f"The Iceberg catalog cannot be read: {' '.join(str(error).split())}. "
            "Check LAKEHOUSE_CATALOG_URI, and that its PostgreSQL is running."
        ) from None
    return {name: CatalogEntry(location, kind == "VIEW") for name, location, kind in rows}


def _rest_entries(settings: Settings) -> dict[str, CatalogEntry]:
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    try:
        catalog = open_catalog(settings)
        schemas = [name for name in catalog.list_namespaces() if ".".join(name) in SCHEMAS]
        tables = [name for schema in schemas for name in catalog.list_tables(schema)]
        return {".".join(name): CatalogEntry(catalog.load_table(name).metadata_location, False) for name in tables}
    except CatalogError:
        raise
    except Exception as error:
        raise LakeReadError(
            f"The Iceberg REST catalog cannot be read: {' '.join(str(error).split())}. Check LAKEHOUSE_CATALOG_URI."
        ) from error
