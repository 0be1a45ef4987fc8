"""Private lakes for the bench, and the part of the catalogue that it copies."""

import shutil
from pathlib import Path

from bench.source import TABLES, Source
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import sample


def new(home: Path, name: str, source: Source) -> Settings:
    """Settings of an empty lake of its own, that copies ``source``."""
    database, warehouse = f"lake_{name}", home / name
    source.server.tool("dropdb", "--force", "--if-exists", database)
    source.server.create_database(database)
    shutil.rmtree(warehouse, ignore_errors=True)
    return settings(source).model_copy(
        update={"lakehouse_catalog_uri": source.server.dsn(database), "lakehouse_warehouse": str(warehouse)}
    )


def settings(source: Source) -> Settings:
    """Settings that read ``source``."""
    return Settings().model_copy(update={"synapse_dsn": source.dsn, "synapse_server_name": sample.read_server_name()})


def declared(*tables: str) -> catalogue.Catalogue:
    """The project's catalogue, with ``tables`` (default: all that the bench fills) and their streams only."""
    whole = catalogue.load_catalogue()
    chosen = tuple(whole.table(name) for name in tables or TABLES)
    streams = {name for table in chosen for name in table.streams}
    return whole.model_copy(
        update={"tables": chosen, "streams": tuple(one for one in whole.streams if one.name in streams)}
    )
