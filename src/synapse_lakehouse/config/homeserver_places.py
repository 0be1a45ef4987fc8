"""Recognize that two homeservers share a catalog, warehouse or file, even if their settings are written differently."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from synapse_lakehouse.config import libpq_variables
from synapse_lakehouse.config.check_paths import resolve_path
from synapse_lakehouse.config.connection_strings import parse_conninfo

EFFECTS: Final = {
    "lakehouse_catalog_uri": "write to the lake of the other",
    "lakehouse_warehouse": "write to the folder of the other",
    "lakehouse_metrics_file": "replace the metrics of the other",
}
"""Settings of which each homeserver needs its own value. The text is the harm that a shared value would do."""


def normalize_places(settings: Mapping[str, Any]) -> dict[str, object]:
    """Return a comparable value for each of :data:`EFFECTS`; None for a setting that is not set.

    The warehouse distinguishes the catalogs of one REST server.
    """
    uri, warehouse, metrics_file = (str(settings[name]) if settings[name] else None for name in EFFECTS)
    is_rest = bool(uri and uri.startswith("http"))
    return {
        "lakehouse_catalog_uri": (uri, warehouse) if is_rest else uri and _identify_database(uri),
        "lakehouse_warehouse": None if is_rest or not warehouse else _identify_folder(warehouse),
        "lakehouse_metrics_file": metrics_file and _identify_folder(metrics_file),
    }


def _identify_database(uri: str) -> object:
    parameters = parse_conninfo(libpq_variables.apply_to_uri(uri, libpq_variables.CATALOG_PARAMETERS))
    if parameters is None:
        return uri
    host, port = parameters.get("host", parameters.get("hostaddr", "")).lower(), parameters.get("port") or "5432"
    # The options may contain a search path.
    return host, port, parameters.get("dbname") or parameters.get("user"), parameters.get("options")


def _identify_folder(location: str) -> str:
    location = location.rstrip("/")
    return location.removeprefix("file://") if "://" in location else str(resolve_path(Path(location)))
