"""A lake whose files are not in the configured warehouse is refused with the setting to correct."""

from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import CatalogEntry
from synapse_lakehouse.iceberg.read.errors import LakeReadError


@pytest.mark.parametrize("name", ["file:///lakes/shop", "/lakes/shop", "s3://bucket/shop"])
def test_a_lake_elsewhere_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"audit.releases": CatalogEntry(f"{name}/audit/releases/metadata/1.metadata.json", is_view=False)}
    monkeypatch.setattr(duckdb_reader, "list_catalog_entries", lambda _: entries)
    settings = Settings(_env_file=None, lakehouse_home=tmp_path, lakehouse_homeserver="store")
    with duckdb_reader.open_duckdb(settings) as connection:
        for function in (duckdb_reader.list_releases, duckdb_reader.require_current_format):
            with pytest.raises(LakeReadError, match=f"files are in {name}, but .*/store/.* Set LAKEHOUSE_WAREHOUSE"):
                function(connection, settings)


def test_a_new_catalog_has_no_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_reader, "list_catalog_entries", lambda _: {})
    settings = Settings(_env_file=None, lakehouse_home=tmp_path)
    with duckdb_reader.open_duckdb(settings) as connection:
        assert duckdb_reader.list_releases(connection, settings) == []
