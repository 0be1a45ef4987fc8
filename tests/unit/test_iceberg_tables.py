"""Creation of the lake's tables, and properties that are added to existing tables."""

from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.iceberg.maintenance import erasure_scan
from synapse_lakehouse.iceberg.write import tables

EVENTS = catalogue.load_catalogue().table("event_json")
SMALL_CATALOGUE = catalogue.load_catalogue().model_copy(update={"tables": (EVENTS,)})
JSON_METRICS = "write.metadata.metrics.column.json"


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    return InMemoryCatalog("lake", warehouse=tmp_path.as_uri())


def test_no_bounds_of_message_content_reach_metadata(lake: Catalog) -> None:
    tables.ensure_tables(lake, SMALL_CATALOGUE)
    assert lake.load_table("bronze.event_json").properties[JSON_METRICS] == "none"


def test_an_existing_table_keeps_its_properties(lake: Catalog) -> None:
    lake.create_namespace("bronze")
    own_properties = tables.BRANCHED | {"write.parquet.compression-codec": "gzip"}
    lake.create_table("bronze.event_json", schema=tables.get_arrow_schema(EVENTS), properties=own_properties)
    expected = lake.load_table("bronze.event_json").properties
    tables.ensure_tables(lake, SMALL_CATALOGUE)
    assert lake.load_table("bronze.event_json").properties == expected | {JSON_METRICS: "none"}

    metadata_location = lake.load_table("bronze.event_json").metadata_location
    tables.ensure_tables(lake, SMALL_CATALOGUE)
    assert lake.load_table("bronze.event_json").metadata_location == metadata_location


def test_searched_columns_are_declared_as_content() -> None:
    declared = {
        column.name for table in catalogue.load_catalogue().tables for column in table.columns if column.holds_content
    }
    silver = yaml.safe_load((PROJECT_FOLDER / "dbt" / "models" / "silver" / "_silver.yml").read_text())
    declared |= {
        column["name"]
        for model in silver["models"]
        for column in model["columns"]
        if column.get("config", {}).get("meta", {}).get("holds_content")
    }
    assert set(erasure_scan.CONTENT_COLUMNS) <= declared
