"""Airflow assets that a published run updates."""

from __future__ import annotations

from airflow.sdk import Asset

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER


def published_assets(homeserver: str = "") -> list[Asset]:
    """Return the asset of the release, and one asset for each table that a run publishes.

    Each published run updates the release once. All tables of a release are consistent with each other.

    :param homeserver: the homeserver's name, if the installation has several homeservers.
    """
    tables = [f"bronze/{table.name}" for table in catalogue.load_catalogue().copied_tables()]
    tables += [f"silver/{table.name}" for table in catalogue.load_state_tables()]
    for schema in ("silver", "gold"):
        tables += sorted(
            f"{schema}/{model.stem}" for model in (PROJECT_FOLDER / "dbt" / "models" / schema).rglob("*.sql")
        )
    prefix, at = (f"{homeserver}.", f"{homeserver}/") if homeserver else ("", "")
    return [
        Asset(name=f"{prefix}release", uri=f"lakehouse://{at}audit/releases", group="release"),
        *(
            Asset(
                name=prefix + table.replace("/", "."),
                uri=f"lakehouse://{at}{table}",
                group=table.partition("/")[0],
            )
            for table in tables
        ),
    ]
