"""The homeservers of an installation that has several: each has a file of settings in LAKEHOUSE_HOMESERVERS."""

import os
import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import DotEnvSettingsSource

from synapse_lakehouse.config import env_file
from synapse_lakehouse.config.homeserver_places import EFFECTS, normalize_places
from synapse_lakehouse.config.invalid_settings import list_invalid_settings
from synapse_lakehouse.config.misspelled_settings import find_misspelled_names
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

PLACEHOLDER: Final = "{homeserver}"
"""Text that stands for the homeserver's name in settings that name a place."""

PLACES: Final = ("lakehouse_catalog_uri", "lakehouse_warehouse", "lakehouse_metrics_file", "lakehouse_data_docs_url")
"""Settings that name a place. A shared value applies only if it contains the placeholder, because each homeserver needs
its own place."""

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
    """LAKEHOUSE_HOMESERVERS contains no file of the homeserver."""


def list_homeservers() -> list[str]:
    """Return the names of the homeservers, in order. Without LAKEHOUSE_HOMESERVERS, the list is empty.

    :raises HomeserverError: when the folder cannot be read, or has no file of a homeserver.
    """
    folder = Settings().lakehouse_homeservers
    if folder is None:
        return []
    names = [path.stem for path in _list_entries(folder) if not _explain_misnamed(path)]
    if not names:
        raise HomeserverError(
            f"{folder} has no file NAME.env, where NAME is {_NAME_RULE}. Write one per homeserver, or unset "
            "LAKEHOUSE_HOMESERVERS."
        )
    return names


def explain_misnamed_files() -> dict[str, str]:
    """Return the entries NAME.env of LAKEHOUSE_HOMESERVERS that no homeserver can use, each with the remedy."""
    folder = Settings().lakehouse_homeservers
    entries = _list_entries(folder) if folder else []
    return {entry.name: remedy for entry in entries if (remedy := _explain_misnamed(entry))}


def load_homeserver_settings(name: str) -> Settings:
    """Return the settings of the homeserver ``name``: those in its file, and shared ones.

    :raises UnknownHomeserverError: when there is no such file.
    :raises HomeserverError: when the file lacks a setting, misspells one or has a wrong value.
    :raises EnvFileError: when the file, or a line of it, cannot be read.
    :raises ValidationError: when a shared setting is wrong.
    """
    shared = Settings()
    path = find_file(name)
    own = _read(path)
    _require_names(path)
    values = {setting: Settings.model_fields[setting].default for setting in OWN_SETTINGS}
    values |= own | _read_places(shared, own, name) | {"lakehouse_homeserver": name}
    if shared.lakehouse_warehouse and not values["lakehouse_warehouse"]:
        raise HomeserverError(
            f"LAKEHOUSE_WAREHOUSE={shared.lakehouse_warehouse} would be the warehouse of all homeservers, but each "
            f"needs its own. Add {PLACEHOLDER} to the value: it stands for the homeserver's name. Or set "
            f"LAKEHOUSE_WAREHOUSE in {path}."
        )
    if missing := [setting.upper() for setting in _REQUIRED if not values[setting]]:
        shared_uri = f" Or set LAKEHOUSE_CATALOG_URI once: {PLACEHOLDER} in it stands for the homeserver's name."
        raise HomeserverError(
            f"{path} does not set {' and '.join(missing)}. Each homeserver needs its own value: set it in this file."
            f"{shared_uri * ('LAKEHOUSE_CATALOG_URI' in missing)}"
        )
    try:
        return Settings(**values)
    except ValidationError as error:
        raise HomeserverError(f"{path} has wrong values. {'; '.join(list_invalid_settings(error))}.") from None


def find_file(name: str) -> Path:
    """Return the file of the homeserver ``name``.

    :raises UnknownHomeserverError: when there is no such file.
    """
    folder = Settings().lakehouse_homeservers
    if folder is None:
        raise UnknownHomeserverError(
            f"LAKEHOUSE_HOMESERVERS is not set, so there is no homeserver {name}. Set it to the folder with the file "
            f"{name}.env, or leave out --homeserver and LAKEHOUSE_HOMESERVER."
        )
    try:
        if _NAME.fullmatch(name) and (path := folder / f"{name}.env").is_file():
            return path
    except OSError as error:
        raise _explain_unreadable_folder(folder, error) from None
    raise UnknownHomeserverError(f"There is no homeserver {name}. `lakehouse homeservers` lists the homeservers.")


def require_own_places(settings: Settings) -> None:
    """Raise :class:`HomeserverError` if another homeserver has the catalog, warehouse or metrics file of ``settings``.

    An operator may copy a file to add a homeserver, and the copy may still name the places of the original.
    """
    shared, own_name = Settings(), settings.lakehouse_homeserver
    own_places = normalize_places(settings.model_dump(include=set(EFFECTS)))
    for name in list_homeservers():
        if name == own_name:
            continue
        try:
            own = _read(find_file(name))
            places = normalize_places(_read_places(shared, own, name))
        except (LakehouseError, ValueError):
            continue
        for setting, place in own_places.items():
            if place and place == places[setting]:
                raise HomeserverError(
                    f"The homeservers {own_name} and {name} have the same {setting.upper()}, so each would "
                    f"{EFFECTS[setting]}. Set another value in one of their files. A file that is only a backup must "
                    "have another name, such as one.env.bak."
                )


def require_one_homeserver() -> None:
    """Raise :class:`HomeserverError` if the installation has several homeservers."""
    if names := list_homeservers():
        raise HomeserverError(
            f"This installation has several homeservers: {', '.join(names)}. Name one, as in "
            f"`lakehouse --homeserver {names[0]} doctor`, or set LAKEHOUSE_HOMESERVER."
        )


def select_homeserver(name: str) -> Path:
    """Replace all settings in the environment by those of the homeserver ``name``, for this process and its children.

    Return the homeserver's file.

    :raises HomeserverError: see :func:`load_homeserver_settings`.
    """
    # With this variable, the shared settings in .env would not be read.
    os.environ.pop("LAKEHOUSE_HOMESERVER", None)
    path = find_file(name)
    settings = load_homeserver_settings(name)
    require_own_places(settings)
    for setting in Settings.model_fields:
        os.environ.pop(setting.upper(), None)
    os.environ.update(settings.to_environment())
    return path


def get_dag_id(dag: str, homeserver: str | None) -> str:
    """Return the ID of a homeserver's DAG. If the installation has one homeserver, the ID is the name of the DAG."""
    return f"{dag}.{homeserver}" if homeserver else dag


def format_command(command: str, homeserver: str | None) -> str:
    """Return a command of ``lakehouse`` for advice, in backquotes, such as ```lakehouse --homeserver shop doctor```."""
    return f"`lakehouse {f'--homeserver {homeserver} ' if homeserver else ''}{command}`"


def split_dag_id(dag_id: str) -> tuple[str, str]:
    """Return the DAG and the name of the homeserver of a DAG ID; an empty name without LAKEHOUSE_HOMESERVERS."""
    dag, _, homeserver = dag_id.partition(".")
    return dag, homeserver


def _list_entries(folder: Path) -> list[Path]:
    """Return the entries NAME.env, sorted. Hidden files are left out, because editors write them."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".env" and not path.name.startswith("."))
    except OSError as error:
        raise _explain_unreadable_folder(folder, error) from None


def _explain_misnamed(entry: Path) -> str | None:
    """Return the remedy for an entry of the folder that cannot be the file of a homeserver; None if it can."""
    try:
        if entry.is_dir():
            return "This is a folder. Give it a name that does not end with .env."
    except OSError as error:
        raise _explain_unreadable_folder(entry.parent, error) from None
    return None if _NAME.fullmatch(entry.stem) else f"Rename the file to NAME.env, where NAME is {_NAME_RULE}."


def _explain_unreadable_folder(folder: Path | None, error: OSError) -> HomeserverError:
    return HomeserverError(
        f"LAKEHOUSE_HOMESERVERS={folder} cannot be read ({error.strerror}). Set it to a folder with a file "
        "NAME.env per homeserver."
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        env_file.require_assignments(path)
        return DotEnvSettingsSource(Settings, env_file=path, env_file_encoding=env_file.ENCODING)()
    except (UnicodeDecodeError, OSError) as error:
        raise env_file.explain_unreadable_file(error, path) from None


def _require_names(path: Path) -> None:
    """Raise :class:`HomeserverError` if the file sets a name that has no effect in it."""
    names = env_file.read_env_file(path)
    for wrong, right in find_misspelled_names(names).items():
        raise HomeserverError(
            f"{path} sets {wrong}, which is not a setting.{f' Did you mean {right}?' if right else ''}"
        )
    if variable := next((name for name in names if name.upper().startswith("PG")), None):
        raise HomeserverError(
            f"{path} sets {variable}, which has no effect there: PostgreSQL's variables are read from the environment "
            "only, and apply to all homeservers. Write the value into the URI, as in "
            "SYNAPSE_DSN=postgresql://user:password@host:5432/synapse?sslmode=require"
        )
    text = path.read_text(encoding=env_file.ENCODING)
    if key := next((name for name in names if name.startswith("AWS_") and f"${{{name}}}" not in text), None):
        raise HomeserverError(
            f"{path} sets {key}, which has no effect there: the variables of AWS are read from the environment only, "
            "and apply to all homeservers. Write the value into LAKEHOUSE_CATALOG_PROPERTIES, as in "
            'LAKEHOUSE_CATALOG_PROPERTIES={"s3.access-key-id": "…", "s3.secret-access-key": "…"}'
        )


def _read_places(shared: Settings, own: dict[str, Any], name: str) -> dict[str, str | None]:
    """Return the :data:`PLACES` of a homeserver. A shared value counts only if it contains the placeholder."""
    places = {}
    for setting in PLACES:
        value = str(own.get(setting) or getattr(shared, setting) or "")
        is_own = own.get(setting) or PLACEHOLDER in value
        places[setting] = value.replace(PLACEHOLDER, name) if is_own else None
    return places
