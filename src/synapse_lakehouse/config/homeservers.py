"""The homeservers of an installation that has several: each has a file of settings in LAKEHOUSE_HOMESERVERS."""

import os
import re
from pathlib import Path
from typing import Any, Final

from pydantic_settings import DotEnvSettingsSource

from synapse_lakehouse.config import env_file
from synapse_lakehouse.config.misspelled_settings import find_misspelled_names
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

PLACEHOLDER: Final = "{homeserver}"
"""Text that stands for the homeserver's name in shared settings that name a place."""

PLACES: Final = ("lakehouse_catalog_uri", "lakehouse_warehouse", "lakehouse_metrics_file", "lakehouse_data_docs_url")
"""Shared settings that a homeserver has only if they contain the placeholder, because each needs its own place."""

OWN_SETTINGS: Final = (
    "synapse_dsn",
    "synapse_state_dsn",
    "synapse_server_name",
    "synapse_write_dsn",
    "synapse_config",
    "lakehouse_homeservers",
    "lakehouse_stream_writers",
    "lakehouse_acknowledged_ids",
    "lakehouse_acknowledged_rooms",
    "lakehouse_source_disk_bytes",
    "lakehouse_redis_url",
    "lakehouse_compressor_rooms",
)
"""Settings that a homeserver has only if its own file sets them. It shares all others with the other homeservers."""

_REQUIRED: Final = ("synapse_dsn", "synapse_server_name", "lakehouse_catalog_uri")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")

_NAME_RULE: Final = "lower-case letters, digits, -, _ and . (41 characters at most, a letter or digit first)"


class HomeserverError(LakehouseError):
    """The settings of a homeserver cannot be used. The message names the file and the remedy."""


class UnknownHomeserverError(HomeserverError):
    """There is no file of the homeserver."""


def list_homeservers() -> list[str]:
    """Return the names of the homeservers, in order. Without LAKEHOUSE_HOMESERVERS, the list is empty.

    :raises HomeserverError: when the folder cannot be read, or has no file of a homeserver.
    """
    folder = Settings().lakehouse_homeservers
    if folder is None:
        return []
    names = [path.stem for path in _list_files(folder) if _NAME.fullmatch(path.stem)]
    if not names:
        raise HomeserverError(
            f"{folder} has no file NAME.env, where NAME is {_NAME_RULE}. Write one per homeserver, or unset "
            "LAKEHOUSE_HOMESERVERS."
        )
    return names


def explain_misnamed_files() -> dict[str, str]:
    """Return the files in LAKEHOUSE_HOMESERVERS that no homeserver has because of their names, with the remedy."""
    folder = Settings().lakehouse_homeservers
    files = _list_files(folder) if folder else []
    remedy = f"Rename it: {_NAME_RULE}, and .env."
    return {file.name: remedy for file in files if not _NAME.fullmatch(file.stem)}


def load_homeserver_settings(name: str) -> Settings:
    """Return the settings of the homeserver ``name``: those in its file, and shared ones.

    :raises UnknownHomeserverError: when there is no such file.
    :raises HomeserverError: when the file lacks a setting or misspells one.
    :raises ValidationError: when a value is wrong.
    """
    shared = Settings()
    path = _find_file(shared.lakehouse_homeservers, name)
    own = _read(path)
    for wrong, right in find_misspelled_names(env_file.read_env_file(path)).items():
        raise HomeserverError(
            f"{path} sets {wrong}, which is not a setting.{f' Did you mean {right}?' if right else ''}"
        )
    values = {setting: Settings.model_fields[setting].default for setting in OWN_SETTINGS}
    values |= {setting: _fill_place(getattr(shared, setting), name) for setting in PLACES}
    values |= own | {"lakehouse_homeserver": name}
    if shared.lakehouse_warehouse and not values["lakehouse_warehouse"]:
        raise HomeserverError(
            f"LAKEHOUSE_WAREHOUSE={shared.lakehouse_warehouse} would be the warehouse of all homeservers, but each "
            f"needs its own. Add {PLACEHOLDER} to the value, which stands for the name, or set it in {path}."
        )
    if missing := [setting.upper() for setting in _REQUIRED if not values[setting]]:
        raise HomeserverError(
            f"{path} does not set {' and '.join(missing)}. Each homeserver has its own. For the catalogs, you may also "
            f"set LAKEHOUSE_CATALOG_URI once for all, with {PLACEHOLDER} in place of the name."
        )
    return Settings(**values)


def require_own_catalog(settings: Settings) -> None:
    """Raise :class:`HomeserverError` if another homeserver has the catalog of the homeserver with ``settings``.

    Files are copied to add a homeserver, and the copy may have the catalog of the original.
    """
    shared, own_name = Settings(), settings.lakehouse_homeserver
    for name in list_homeservers():
        if name == own_name:
            continue
        try:
            own = _read(_find_file(shared.lakehouse_homeservers, name))
        except (LakehouseError, ValueError):
            continue
        uri, warehouse = (
            own.get(setting) or _fill_place(getattr(shared, setting), name)
            for setting in ("lakehouse_catalog_uri", "lakehouse_warehouse")
        )
        # A REST server may have several catalogs, which the warehouse distinguishes.
        is_another_warehouse = str(uri).startswith("http") and warehouse != settings.lakehouse_warehouse
        if uri == settings.lakehouse_catalog_uri and not is_another_warehouse:
            raise HomeserverError(
                f"The homeservers {own_name} and {name} have the same LAKEHOUSE_CATALOG_URI, so each would write to "
                "the lake of the other. Set another catalog in one of their files."
            )


def require_one_homeserver() -> None:
    """Raise :class:`HomeserverError` if the installation has several homeservers."""
    if names := list_homeservers():
        raise HomeserverError(
            f"This installation has several homeservers: {', '.join(names)}. Name one, as in "
            f"`lakehouse --homeserver {names[0]} doctor`, or set LAKEHOUSE_HOMESERVER."
        )


def select_homeserver(name: str) -> None:
    """Replace all settings in the environment by those of the homeserver ``name``, for this process and its children.

    :raises HomeserverError: see :func:`load_homeserver_settings`.
    """
    # With this variable, the shared settings in .env would not be read.
    os.environ.pop("LAKEHOUSE_HOMESERVER", None)
    settings = load_homeserver_settings(name)
    require_own_catalog(settings)
    for setting in Settings.model_fields:
        os.environ.pop(setting.upper(), None)
    os.environ.update(settings.to_environment())


def get_dag_id(dag: str, homeserver: str | None) -> str:
    """Return the ID of a homeserver's DAG. If the installation has one homeserver, it is the name of the DAG."""
    return f"{dag}.{homeserver}" if homeserver else dag


def split_dag_id(dag_id: str) -> tuple[str, str]:
    """Return the DAG and the name of the homeserver of a DAG ID; an empty name without LAKEHOUSE_HOMESERVERS."""
    dag, _, homeserver = dag_id.partition(".")
    return dag, homeserver


def _list_files(folder: Path) -> list[Path]:
    """Return the files of homeservers, in order. Editors write hidden files."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".env" and not path.name.startswith("."))
    except OSError as error:
        raise _explain_unreadable_folder(folder, error) from None


def _find_file(folder: Path | None, name: str) -> Path:
    try:
        if folder and _NAME.fullmatch(name) and (path := folder / f"{name}.env").is_file():
            return path
    except OSError as error:
        raise _explain_unreadable_folder(folder, error) from None
    raise UnknownHomeserverError(f"There is no homeserver {name}. `lakehouse homeservers` lists the homeservers.")


def _explain_unreadable_folder(folder: Path | None, error: OSError) -> HomeserverError:
    return HomeserverError(
        f"LAKEHOUSE_HOMESERVERS={folder} cannot be read ({error.strerror}). Set it to a folder with a file "
        "NAME.env per homeserver."
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return DotEnvSettingsSource(Settings, env_file=path, env_file_encoding=env_file.ENCODING)()
    except (UnicodeDecodeError, OSError) as error:
        raise env_file.explain_unreadable_file(error, path) from None


def _fill_place(shared: object, name: str) -> str | None:
    return str(shared).replace(PLACEHOLDER, name) if PLACEHOLDER in str(shared) else None
