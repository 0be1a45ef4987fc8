"""The published copy of the sample equals the source in every row and byte."""

import hashlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from duckdb import DuckDBPyConnection

from synapse_lakehouse import catalogue
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import PublishedLake
from tests.support.dataframe_compare import differences


@pytest.fixture(scope="module")
def lake(published: PublishedLake) -> Iterator[DuckDBPyConnection]:
    with duckdb_reader.open_duckdb(published.settings) as connection:
        release = duckdb_reader.get_release(connection, published.settings)
        duckdb_reader.create_views(connection, published.settings, release, release.tables)
        yield connection


@pytest.fixture(scope="module")
def source(sample_dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(sample_dsn) as connection:
        yield connection


@pytest.mark.parametrize("table", catalogue.load_catalogue().copied_tables(), ids=lambda table: table.name)
def test_every_row_is_copied_with_the_same_content(
    table: catalogue.Table, lake: DuckDBPyConnection, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    assert differences(table, lake, source) == (0, 0)


def test_event_json_is_byte_for_byte_the_same(
    lake: DuckDBPyConnection, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    in_lake = dict(lake.execute("select event_id, sha256(json) from bronze.event_json").fetchall())
    in_source = {
        event_id: hashlib.sha256(bytes(json)).hexdigest()
        for event_id, json in source.execute("select event_id, convert_to(json, 'UTF8') from event_json")
    }
    assert in_lake == in_source
    assert len(in_lake) > 3000


def test_the_summary_has_results_and_links(published: PublishedLake) -> None:
    for words in ("Release 1", "event_json", "Stream positions", "Checks", "0 failed", "Data Docs", "make ui"):
        assert words in published.output
    assert published.output.count("lakehouse query") == 3
