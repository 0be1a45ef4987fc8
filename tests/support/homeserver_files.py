"""Settings files of several homeservers."""

from pathlib import Path

from synapse_lakehouse.config.settings import Settings


def write_homeserver(folder: Path, name: str, **settings: object) -> None:
    """Write the settings to ``NAME.env``."""
    lines = (f"{setting.upper()}='{value}'\n" for setting, value in settings.items())
    (folder / f"{name}.env").write_text("".join(lines))


def write_lake(folder: Path, name: str, settings: Settings) -> None:
    """Write ``NAME.env`` with the source and the lake of ``settings``."""
    names = ("synapse_dsn", "synapse_server_name", "synapse_config", "lakehouse_catalog_uri", "lakehouse_warehouse")
    write_homeserver(folder, name, **{setting: getattr(settings, setting) for setting in names})
