"""Open DuckDB connections that read the lake's tables and views, at a release, without a JVM.

PyIceberg, pandas and pyarrow take seconds to import, so this module avoids them unless the catalog is a REST catalog.
SQL is composed of quoted names and literals, because the first bound parameter makes DuckDB import pandas.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import duckdb
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import RELEASES_TABLE, Release, has_current_format
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import object_store
from synapse_lakehouse.iceberg.catalog.catalog import CATALOG_NAME, SCHEMAS, is_unbranched
from synapse_lakehouse.iceberg.read import duckdb_spill
from synapse_lakehouse.iceberg.read.catalog_entries import CatalogEntry, list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import EarlierFormatError, LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import find_table_names, iceberg_scan_sql, quote_literal, quote_table_name

SPARK_FUNCTION_MACROS: Final = (
    "create or replace macro unix_millis(moment) as epoch_ms(moment)",
    "create or replace macro timestamp_millis(milliseconds) as make_timestamptz(milliseconds * 1000)",
)
"""DuckDB macros for the Spark functions that views of the lake call."""


def open_duckdb(settings: Settings) -> DuckDBPyConnection:
    """Return an in-memory DuckDB in UTC. It can read Iceberg tables in the warehouse, and no other files.

    :raises LakeReadError: when the warehouse is neither a folder nor on S3.
    """
    on_s3 = object_store.uses_s3(settings)
    if not on_s3 and not settings.warehouse.startswith("file:"):
        raise LakeReadError(
            f"The warehouse {settings.warehouse} is neither a folder nor on S3 (s3://bucket/prefix), so DuckDB cannot "
            "read it. Correct LAKEHOUSE_WAREHOUSE."
        )
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "python_enable_replacements": False})
    connection.execute("set enable_progress_bar = false")
    for extension in (*(["httpfs"] if on_s3 else []), "avro", "iceberg"):
        connection.execute(f"load {quote_literal(str(find_extension_file(extension)))}")
    if on_s3:
        connection.execute(create_secret_sql(settings))
    connection.execute(f"attach ':memory:' as {CATALOG_NAME}; use {CATALOG_NAME}; set TimeZone = 'UTC'")
    for schema in SCHEMAS:
        connection.execute(f"create schema {schema}")
    for macro in SPARK_FUNCTION_MACROS:
        connection.execute(macro)
    spill = duckdb_spill.create_spill_folder(settings)
    connection.execute(f"set temp_directory = {quote_literal(str(spill))}")
    allowed = [*_list_prefixes(settings), f"{spill}/"]
    connection.execute(f"set allowed_directories = [{', '.join(map(quote_literal, allowed))}]")
    connection.execute("set enable_external_access = false; set lock_configuration = true")
    return connection


def create_secret_sql(settings: Settings, *, with_keys: bool = True) -> str:
    """Return the SQL that creates a secret for the warehouse on S3 (see ``object_store.get_duckdb_secret_options``)."""
    options = object_store.get_duckdb_secret_options(settings, with_keys=with_keys)
    assignments = ", ".join(f"{name} {quote_literal(value)}" for name, value in options.items())
    return f"create secret warehouse (type s3, {assignments})"


def find_extension_file(extension: str) -> Path:
    """Return the signed extension for the installed DuckDB, from the wheel ``duckdb-extension-<extension>``."""
    package = Path(str(find_spec(f"duckdb_extension_{extension}").origin)).parent  # type: ignore[union-attr]
    return package / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"


def require_current_format(connection: DuckDBPyConnection, settings: Settings) -> None:
    """Check that the lake has the present format.

    :raises EarlierFormatError: when an earlier version of the project wrote the lake.
    :raises LakeReadError: when the catalog cannot be reached.
    """
    entry = _find_releases_table(settings)
    if entry and not has_current_format(read_metadata(connection, entry.location)["properties"]):
        raise EarlierFormatError


def list_releases(connection: DuckDBPyConnection, settings: Settings) -> list[Release]:
    """Return all releases, the latest first.

    :raises LakeReadError: when the catalog cannot be reached, or a file of the table cannot be read.
    """
    if not _find_releases_table(settings):
        return []
    create_views(connection, settings, None, [RELEASES_TABLE])
    try:
        rows = read_rows(connection, "from audit.releases order by release desc")
    except duckdb.Error as error:
        raise LakeReadError(
            f"The list of releases cannot be read: {str(error).splitlines()[0]}. Run `lakehouse doctor`."
        ) from error
    return [Release.of_row(row) for row in rows]


def _find_releases_table(settings: Settings) -> CatalogEntry | None:
    """Return the entry of ``audit.releases``; None in a new catalog.

    :raises LakeReadError: when the catalog cannot be reached, or describes another warehouse.
    """
    entry = list_catalog_entries(settings).get(RELEASES_TABLE)
    if entry and not entry.location.startswith(_list_prefixes(settings)):
        raise LakeReadError(
            f"The lake's files are in {entry.location.partition('/audit/')[0]}, but the warehouse is "
            f"{settings.warehouse}, so they cannot be read. Set LAKEHOUSE_WAREHOUSE to the location of the files, or "
            "correct LAKEHOUSE_CATALOG_URI. If LAKEHOUSE_WAREHOUSE is not set, its default depends on the name of the "
            "homeserver."
        )
    return entry


def _list_prefixes(settings: Settings) -> tuple[str, ...]:
    """Return the beginnings of locations in the warehouse."""
    return settings.warehouse.removeprefix("file://") + "/", settings.warehouse + "/"


def get_release(connection: DuckDBPyConnection, settings: Settings, number: int | None = None) -> Release:
    """Return the release with this number; by default the latest release.

    :raises LakeReadError: when the release does not exist.
    """
    releases = list_releases(connection, settings)
    if not releases:
        raise LakeReadError("The lake has no release yet. Run `make run` first.")
    for release in releases:
        if number in (None, release.number):
            return release
    raise LakeReadError(
        f"There is no release {number}. The releases are {releases[-1].number} to {releases[0].number}; "
        "`lakehouse releases` lists them."
    )


def create_views(
    connection: DuckDBPyConnection, settings: Settings, release: Release | None, names: Iterable[str]
) -> None:
    """Create views of the tables and views ``names`` (such as ``gold.events``). Names that the lake lacks are skipped.

    With ``release``, tables are read at the release's Iceberg snapshots, and views have the SQL that the release
    recorded. Without ``release``, tables are read on main, and views have the SQL of the catalog. Unbranched tables are
    read as they are now.

    :raises LakeReadError: when a table cannot be read, for example because its snapshot has been expired.
    """
    for name, sql in iterate_view_definitions(connection, settings, release, names):
        try:
            connection.execute(f"create or replace view {quote_table_name(name)} as {sql}")
        except duckdb.Error as error:
            at = f" at release {release.number}" if release else ""
            raise LakeReadError(
                f"{name} cannot be read{at}: {str(error).splitlines()[0]}. If its snapshot has been expired, read a "
                "later release (see `lakehouse releases`). If its files are missing, run `lakehouse doctor`."
            ) from error


def iterate_view_definitions(
    connection: DuckDBPyConnection, settings: Settings, release: Release | None, names: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield name and SELECT of each view of :func:`create_views`. Views that a SELECT reads come first."""
    entries = list_catalog_entries(settings)
    visited = set[str]()

    def define(name: str) -> Iterator[tuple[str, str]]:
        sql = None if name in visited else _definition(connection, entries, release, name)
        visited.add(name)
        if sql is not None:
            if _is_view(name, entries, release):
                for inner in sorted(find_table_names(sql)):
                    yield from define(inner)
            yield name, sql

    for name in names:
        yield from define(name)


def _is_view(name: str, entries: Mapping[str, CatalogEntry], release: Release | None) -> bool:
    return name in release.views if release else name in entries and entries[name].is_view


def _definition(
    connection: DuckDBPyConnection, entries: Mapping[str, CatalogEntry], release: Release | None, name: str
) -> str | None:
    """Return the SELECT that reads ``name``; None if there is no such table or view."""
    if _is_view(name, entries, release):
        return release.views[name] if release else _view_sql(read_metadata(connection, entries[name].location))
    if name not in entries:
        return None
    location = entries[name].location
    if not release or is_unbranched(name):
        return f"from {iceberg_scan_sql(location)}"
    return f"from {iceberg_scan_sql(location, release.tables[name])}" if name in release.tables else None


def set_release_variables(connection: DuckDBPyConnection, release: Release) -> None:
    """Set DuckDB's variables ``release`` (number), ``run`` (run ID) and ``audited_until`` (time) for ``release``.

    Rows that the run wrote to audit tables after ``audited_until`` belong to another try, which may be unpublished.
    """
    connection.execute(
        f"set variable release = {int(release.number)}; set variable run = {quote_literal(release.run_id)};"
        f" set variable audited_until = {quote_literal(release.accepted_at.isoformat())}::timestamptz"
    )


def read_rows(connection: DuckDBPyConnection, sql: str, maximum: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries, at most ``maximum``."""
    result = connection.execute(sql)
    names = [column[0] for column in result.description or ()]
    rows = result.fetchall() if maximum is None else result.fetchmany(maximum)
    return [dict(zip(names, row, strict=True)) for row in rows]


def read_metadata(connection: DuckDBPyConnection, location: str) -> dict[str, Any]:
    """Return Iceberg's metadata of a table or view, from the file at ``location``."""
    row = connection.execute(f"select content from read_blob({quote_literal(location)})").fetchone()  # noqa: S608
    if row is None:
        raise LakeReadError(
            f"The metadata file {location} does not exist, so the catalog describes another warehouse. Correct "
            "LAKEHOUSE_WAREHOUSE or LAKEHOUSE_CATALOG_URI."
        )
    content = bytes(row[0])
    parsed: dict[str, Any] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    return parsed


def _view_sql(view: Mapping[str, Any]) -> str:
    version = next(version for version in view["versions"] if version["version-id"] == view["current-version-id"])
    return str(version["representations"][0]["sql"])
