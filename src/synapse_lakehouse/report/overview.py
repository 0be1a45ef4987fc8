"""The state of each homeserver of an installation that has several."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synapse_lakehouse.config.env_file import EnvFileError
from synapse_lakehouse.config.homeservers import (
    HomeserverError,
    explain_misnamed_files,
    load_homeserver_settings,
    require_own_places,
)
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.report.load_template import load_template
from synapse_lakehouse.report.overall_status import INCIDENTS, Level, Status, describe_status
from synapse_lakehouse.report.read_panels import PanelReader


@dataclass(frozen=True)
class HomeserverStatus:
    """A homeserver and the state of its lake."""

    name: str
    server_name: str
    status: Status


def read_overview(names: Iterable[str]) -> list[HomeserverStatus]:
    """Return the state of each homeserver. A lake that cannot be read is a state, too."""
    return [_read(name) for name in names]


def describe_misnamed_files() -> list[HomeserverStatus]:
    """Return a row for each file of settings that no homeserver has because of its name."""
    files = explain_misnamed_files().items()
    return [_describe_failure(file, "", "No homeserver can have this name.", remedy) for file, remedy in files]


def render_overview(rows: Sequence[HomeserverStatus]) -> str:
    """Return the HTML of the overview."""
    return load_template("overview.html.j2").render(rows=rows)


def _read(name: str) -> HomeserverStatus:
    server_name = ""
    try:
        settings = load_homeserver_settings(name)
        require_own_places(settings)
        server_name = settings.synapse_server_name or ""
        with duckdb_reader.open_duckdb(settings) as connection:
            releases = duckdb_reader.list_releases(connection, settings)
            latest = releases[0] if releases else None
            incidents = PanelReader(connection, settings, latest).read(INCIDENTS)
        return HomeserverStatus(name, server_name, describe_status(latest, incidents))
    except (EnvFileError, HomeserverError) as error:
        return _describe_failure(name, server_name, str(error), "Correct its file.")
    except LakehouseError as error:
        return _describe_failure(name, server_name, str(error), f"Run `lakehouse --homeserver {name} doctor`.")


def _describe_failure(name: str, server_name: str, reason: str, step: str) -> HomeserverStatus:
    return HomeserverStatus(name, server_name, Status(Level.WARNING, None, reason, step, ()))
