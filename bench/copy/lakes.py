"""Create empty lakes for the benchmark, and select the tables of the catalogue that it copies."""

import shutil
from pathlib import Path

from bench.copy.source_database import TABLES, SourceDatabase
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import sample


def create_lake(home: Path, name: str, source: SourceDatabase) -> Settings:
    """Create an empty lake for copies of ``source``, and return its settings."""
    database, warehouse = f"lake_{name}", home / name
    source.server.tool("dropdb", "--force", "--if-exists", database)
    source.server.create_database(database)
    shutil.rmtree(warehouse, ignore_errors=True)
    return source_settings(source).model_copy(
        update={"lakehouse_catalog_uri": source.server.dsn(database), "lakehouse_warehouse": str(warehouse)}
    )


def source_settings(source: SourceDatabase) -> Settings:
    """Return settings that read ``source``."""
    return Settings().model_copy(update={"synapse_dsn": source.dsn, "synapse_server_name": sample.read_server_name()})


def select_tables(*tables: str) -> catalogue.Catalogue:
    """Return the catalogue with only ``tables`` (by default all tables of the benchmark) and their streams."""
    full = catalogue.load_catalogue()
    selected = tuple(full.table(name) for name in tables or TABLES)
    streams = {name for table in selected for name in table.streams}
    return full.model_copy(
        update={"tables": selected, "streams": tuple(stream for stream in full.streams if stream.name in streams)}
    )
