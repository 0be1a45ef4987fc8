"""Read the catalogue from dbt's sources files."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from synapse_lakehouse.catalogue.catalogue import Catalogue
from synapse_lakehouse.catalogue.column_declaration import POSTGRES_TYPES, Column
from synapse_lakehouse.catalogue.stream_declaration import StartupSequence, Stream
from synapse_lakehouse.catalogue.table_declaration import Table


@cache
def load_catalogue() -> Catalogue:
    """Return the project's catalogue."""
    return parse_catalogue(find_sources_file().read_text(encoding="utf-8"))


@cache
def load_state_tables() -> tuple[Table, ...]:
    """Return the silver tables that contain resolved state."""
    (source,) = yaml.safe_load(find_sources_file("silver/_state__sources.yml").read_text(encoding="utf-8"))["sources"]
    return tuple(_parse_table(declared) for declared in source["tables"])


def find_sources_file(name: str = "bronze/_synapse__sources.yml") -> Path:
    """Return the path of a sources file of dbt's models, in the checkout or in the installed package."""
    packaged = Path(str(files("synapse_lakehouse"))) / Path(name).name
    return packaged if packaged.exists() else Path(__file__).parents[3] / "dbt/models" / name


def parse_catalogue(text: str) -> Catalogue:
    """Parse a dbt sources file.

    :raises pydantic.ValidationError: when a key is missing, misspelt or contradictory.
    """
    (source,) = yaml.safe_load(text)["sources"]
    meta = source["config"]["meta"]
    return Catalogue(
        oldest_release=meta["schema_version"]["oldest_release"],
        oldest_schema_version=meta["schema_version"]["oldest"],
        newest_schema_version=meta["schema_version"]["newest"],
        streams=tuple(Stream(name=name, **declared) for name, declared in meta["streams"].items()),
        checked_at_start=tuple(
            StartupSequence(name=name, **declared) for name, declared in meta.get("checked_at_start", {}).items()
        ),
        tables=tuple(_parse_table(declared) for declared in source["tables"]),
    )


def _parse_table(declared: dict[str, Any]) -> Table:
    meta = declared["config"]["meta"]
    return Table(
        name=declared["name"],
        description=declared["description"],
        **{"key_enforced": True, "streams": {}, "writer_column": None} | meta,
        columns=tuple(_parse_column(column) for column in declared["columns"]),
    )


def _parse_column(declared: dict[str, Any]) -> Column:
    meta = declared.get("config", {}).get("meta", {})
    return Column(
        name=declared["name"],
        data_type=declared["data_type"],
        description=re.sub(r"\s+", " ", declared["description"]).strip(),
        **{"source_type": POSTGRES_TYPES.get(declared["data_type"])} | meta,
    )
