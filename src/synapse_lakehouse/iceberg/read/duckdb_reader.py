"""DuckDB connections that read the lake's tables and views, at a release or on a branch, without a JVM.

Imports of PyIceberg, pandas or pyarrow take seconds, so this module avoids them unless the catalog is a REST one. For
the same reason SQL is composed of quoted names and literals: the first bound parameter makes DuckDB import pandas.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import duckdb
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import object_store
from synapse_lakehouse.iceberg.catalog.catalog import (
    CATALOG_NAME,
    SCHEMAS,
    is_unbranched,
)
from synapse_lakehouse.iceberg.read import duckdb_spill
from synapse_lakehouse.iceberg.read.catalog_entries import CatalogEntry, list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import find_table_names, iceberg_scan_sql, quote_literal, quote_table_name

SPARK_FUNCTION_MACROS: Final = ("create or replace macro unix_millis(moment) as epoch_ms(moment)",)
"""DuckDB macros for functions of Spark that views of the lake call."""


def open_duckdb(settings: Settings, *, memory_limit: str | None = None) -> DuckDBPyConnection:
    """An in-memory DuckDB, in UTC, that can read Iceberg tables in the warehouse and no other file.

    :param memory_limit: as Spark or DuckDB write it (``4g``); by default most of the machine's memory.
    :raises LakeReadError: when the warehouse is neither a folder nor on S3.
    """
    on_s3 = object_store.uses_s3(settings)
    if not on_s3 and not settings.warehouse.startswith("file:"):
        raise LakeReadError(
            f"The warehouse {settings.warehouse} is neither a folder nor on S3 (s3://bucket/prefix), and the DuckDB "
            "that answers queries here reads no others. Correct LAKEHOUSE_WAREHOUSE."
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
    if memory_limit:
        connection.execute(f"set memory_limit = {quote_literal(memory_limit)}")
    own = duckdb_spill.create_spill_folder(settings)
    connection.execute(f"set temp_directory = {quote_literal(str(own))}")
    allowed = [settings.warehouse.removeprefix("file://") + "/", settings.warehouse + "/", f"{own}/"]
    connection.execute(f"set allowed_directories = [{', '.join(map(quote_literal, allowed))}]")
    connection.execute("set enable_external_access = false; set lock_configuration = true")
    return connection


def open_branch(settings: Settings, branch: str, names: Iterable[str]) -> DuckDBPyConnection:
    """A DuckDB with as much memory as Spark's driver; what does not fit goes to the disk.

    :param names: tables that are readable in it under their names, as a reader on ``branch`` finds them.
    :raises LakeReadError: when the lake cannot be read.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(open_duckdb(settings, memory_limit=settings.lakehouse_driver_memory))
        create_views(connection, settings, None, names, branch=branch)
        stack.pop_all()
    return connection


def create_secret_sql(settings: Settings, *, with_keys: bool = True) -> str:
    """SQL of the secret with :func:`~synapse_lakehouse.iceberg.catalog.object_store.get_duckdb_secret_options`."""
    options = object_store.get_duckdb_secret_options(settings, with_keys=with_keys)
    assignments = ", ".join(f"{name} {quote_literal(value)}" for name, value in options.items())
    return f"create secret warehouse (type s3, {assignments})"


def find_extension_file(extension: str) -> Path:
    """The signed extension that the wheel ``duckdb-extension-<extension>`` brings for the installed DuckDB."""
    package = Path(str(find_spec(f"duckdb_extension_{extension}").origin)).parent  # type: ignore[union-attr]
    return package / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"


def list_releases(connection: DuckDBPyConnection, settings: Settings) -> list[Release]:
    """All releases, the latest first.

    :raises LakeReadError: when the catalog cannot be reached.
    """
    if "audit.releases" not in list_catalog_entries(settings):
        return []
    create_views(connection, settings, None, ["audit.releases"])
    found = connection.execute("from audit.releases order by release desc")
    names = [column[0] for column in found.description or ()]
    return [Release.of_row(dict(zip(names, row, strict=True))) for row in found.fetchall()]


def get_release(connection: DuckDBPyConnection, settings: Settings, number: int | None = None) -> Release:
    """The release with this number; by default the latest.

    :raises LakeReadError: when it does not exist.
    """
    known = list_releases(connection, settings)
    if not known:
        raise LakeReadError("Nothing has been published yet, so there is nothing to read. Run `make run` first.")
    for one in known:
        if number in (None, one.number):
            return one
    raise LakeReadError(
        f"There is no release {number}: they run from {known[-1].number} to {known[0].number}. "
        "`lakehouse releases` lists them."
    )


def create_views(
    connection: DuckDBPyConnection,
    settings: Settings,
    release: Release | None,
    names: Iterable[str],
    *,
    branch: str | None = None,
) -> None:
    """Create views of the tables and views ``names`` (such as ``gold.events``); names that the lake lacks are skipped.

    At a release, tables are read at its snapshots and views as it recorded them; unbranched tables as they are now.
    Without one, tables are read on ``branch`` where they have it, otherwise on main, and views as the catalog has them.

    :raises LakeReadError: when a table cannot be read, as when its snapshot has been expired.
    """
    for name, sql in iterate_view_definitions(connection, settings, release, names, branch=branch):
        try:
            connection.execute(f"create or replace view {quote_table_name(name)} as {sql}")
        except duckdb.Error as error:
            at = f" at release {release.number}" if release else ""
            raise LakeReadError(
                f"{name} cannot be read{at}: {str(error).splitlines()[0]}. If its snapshot has been expired, read a "
                "later release (`lakehouse releases`); if its files are gone, run `lakehouse doctor`."
            ) from error


def iterate_view_definitions(
    connection: DuckDBPyConnection,
    settings: Settings,
    release: Release | None,
    names: Iterable[str],
    *,
    branch: str | None = None,
) -> Iterator[tuple[str, str]]:
    """What :func:`create_views` creates: each name and its SELECT, after all others that this SELECT names."""
    known = list_catalog_entries(settings)
    seen = set[str]()

    def define(name: str) -> Iterator[tuple[str, str]]:
        sql = None if name in seen else _definition(connection, known, release, branch, name)
        seen.add(name)
        if sql is not None:
            if _is_view(name, known, release):
                for inner in sorted(find_table_names(sql)):
                    yield from define(inner)
            yield name, sql

    for name in names:
        yield from define(name)


def _is_view(name: str, known: Mapping[str, CatalogEntry], release: Release | None) -> bool:
    return name in release.views if release else name in known and known[name].is_view


def _definition(
    connection: DuckDBPyConnection,
    known: Mapping[str, CatalogEntry],
    release: Release | None,
    branch: str | None,
    name: str,
) -> str | None:
    """SELECT that reads ``name``, or None if there is no such table."""
    if _is_view(name, known, release):
        return release.views[name] if release else _view_sql(read_metadata(connection, known[name].location))
    if name not in known:
        return None
    location = known[name].location
    if is_unbranched(name):
        return f"from {iceberg_scan_sql(location)}"
    if release:
        return f"from {iceberg_scan_sql(location, release.tables[name])}" if name in release.tables else None
    snapshot = _branch_snapshot(read_metadata(connection, location), branch) if branch else None
    return f"from {iceberg_scan_sql(location, snapshot)}"


def set_release_variables(connection: DuckDBPyConnection, release: Release) -> None:
    """Set the variables ``release`` (its number), ``run`` (its run ID) and ``audited_until`` (a time).

    Audit rows of the run that are later than ``audited_until`` belong to another try, which may be unpublished.
    """
    connection.execute(
        f"set variable release = {int(release.number)}; set variable run = {quote_literal(release.run_id)};"
        f" set variable audited_until = {quote_literal(release.audited_until.isoformat())}::timestamptz"
    )


def find_branch_snapshot(connection: DuckDBPyConnection, settings: Settings, table: str, branch: str) -> int | None:
    """Snapshot id of ``branch`` of ``table``; None if the table does not have that branch.

    :raises LakeReadError: when there is no such table.
    """
    known = list_catalog_entries(settings)
    if table not in known:
        raise LakeReadError(f"The lake has no table {table}.")
    return _branch_snapshot(read_metadata(connection, known[table].location), branch)


def read_metadata(connection: DuckDBPyConnection, location: str) -> dict[str, Any]:
    """Iceberg's metadata of a table or view, from the file at ``location``."""
    row = connection.execute(f"select content from read_blob({quote_literal(location)})").fetchone()  # noqa: S608
    if row is None:
        raise LakeReadError(
            f"The metadata file {location} is gone: the warehouse is not the one that the catalog describes."
        )
    content = bytes(row[0])
    parsed: dict[str, Any] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    return parsed


def _branch_snapshot(table: Mapping[str, Any], branch: str) -> int | None:
    ref = table.get("refs", {}).get(branch)
    return int(ref["snapshot-id"]) if ref else None


def _view_sql(view: Mapping[str, Any]) -> str:
    version = next(one for one in view["versions"] if one["version-id"] == view["current-version-id"])
    return str(version["representations"][0]["sql"])
