"""The state of each homeserver of an installation with several homeservers."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.config.env_file import EnvFileError
from synapse_lakehouse.config.homeservers import (
    HomeserverError,
    explain_misnamed_files,
    format_command,
    load_homeserver_settings,
    require_own_places,
)
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.report.load_template import load_template
from synapse_lakehouse.report.overall_status import INCIDENTS, Level, Status, describe_status
from synapse_lakehouse.report.page_location import read_page_level
from synapse_lakehouse.report.read_panels import PanelReader

_THREADS: Final = 8


@dataclass(frozen=True)
class HomeserverStatus:
    """A homeserver and the state of its lake."""

    name: str
    server_name: str
    status: Status


def read_overview(names: Iterable[str]) -> list[HomeserverStatus]:
    """Return the state of each homeserver, also if its settings or its lake cannot be read.

    Each unreachable catalog takes ten seconds, so several catalogs are read at once.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_read, names))


def describe_misnamed_settings_files() -> list[HomeserverStatus]:
    """Return a row for each settings file whose name cannot be the name of a homeserver."""
    files = explain_misnamed_files().items()
    return [_describe_failure(file, "", "No homeserver can have this name.", remedy) for file, remedy in files]


def render_overview(rows: Sequence[HomeserverStatus]) -> str:
    """Return the HTML of the overview."""
    return load_template("overview.html.j2").render(rows=rows)


def grade_status(status: Status, settings: Settings, now: datetime) -> Status:
    """Return ``status``, with a worse level if the release is overdue or the homeserver's page lists items to review.

    The DAG ``stream_watch`` reports an overdue release too, but only while Airflow runs.
    """
    limit = settings.overdue_after(now)
    if status.release and now - status.release.published_at > limit:
        late = f" The newest release is older than {limit / timedelta(hours=1):,.0f} hours."
        step = status.next_step or f"Follow the runbook “{IncidentKind.RELEASE_OVERDUE}”."
        status = replace(status, level=Level.SERIOUS, headline=status.headline + late, next_step=step)
    if status.level is Level.GOOD and read_page_level(settings.lake_folder) not in (None, Level.GOOD):
        step = "Open its page, which lists what needs a look."
        status = replace(status, level=Level.WARNING, next_step=step)
    return status


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
        status = describe_status(latest, incidents, name)
        return HomeserverStatus(name, server_name, grade_status(status, settings, datetime.now(UTC)))
    except (EnvFileError, HomeserverError) as error:
        return _describe_failure(name, server_name, str(error), "Correct its file.")
    except LakehouseError as error:
        return _describe_failure(name, server_name, str(error), f"Run {format_command('doctor', name)}.")


def _describe_failure(name: str, server_name: str, reason: str, step: str) -> HomeserverStatus:
    return HomeserverStatus(name, server_name, Status(Level.WARNING, None, reason, step, ()))
