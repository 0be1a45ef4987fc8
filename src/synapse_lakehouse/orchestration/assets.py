"""Airflow assets that a published run updates."""

from __future__ import annotations

from typing import Final

from airflow.sdk import Asset

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER

RELEASE: Final = Asset(name="release", uri="lakehouse://audit/releases", group="release")
"""Each published run updates it once. All tables of a release are consistent with each other."""


def published_assets() -> list[Asset]:
    """Return the release, and one asset for each table that a run publishes."""
    tables = [f"bronze/{table.name}" for table in catalogue.load_catalogue().copied_tables()]
    tables += [f"silver/{table.name}" for table in catalogue.load_state_tables()]
    for schema in ("silver", "gold"):
        tables += sorted(
            f"{schema}/{model.stem}" for model in (PROJECT_FOLDER / "dbt" / "models" / schema).rglob("*.sql")
        )
    return [
        RELEASE,
        *(
            Asset(name=table.replace("/", "."), uri=f"lakehouse://{table}", group=table.partition("/")[0])
            for table in tables
        ),
    ]
