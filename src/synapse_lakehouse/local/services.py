"""Complete the settings: if necessary, start the embedded PostgreSQL for catalog, Airflow's metadata and sample."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from synapse_lakehouse import file_lock
from synapse_lakehouse.config import libpq_variables
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.local.postgres import embedded_postgres, roles, sample

CATALOG_DATABASE = "iceberg"
AIRFLOW_DATABASE = "airflow"
_LATEST: Final = "lake"
"""File with the name of the lake of the latest run."""
_NAME_LENGTH: Final = 50
"""Maximum length of a name, because PostgreSQL truncates database names to 63 bytes."""


class LocalServicesError(LakehouseError):
    """A service of this machine cannot replace a missing setting. The message names the remedy."""


@contextmanager
def connect_services(
    settings: Settings | None = None, *, source: bool = True, latest: bool = False
) -> Iterator[Settings]:
    """Yield settings with a catalog and a source. Their servers run until the context ends.

    Each homeserver has its own embedded catalog and warehouse, because its IDs would look lost or late in the lake of
    another homeserver.

    :param source: whether Synapse's database is needed. If not, the sample is not restored.
    :param latest: whether to use the latest run's lake (or else the sample's) if no homeserver is configured.
    :raises EmbeddedPostgresError: when the embedded server does not start.
    :raises LocalServicesError: when LAKEHOUSE_HOME cannot be created, or SYNAPSE_SERVER_NAME is set without SYNAPSE_DSN
        and differs from the sample's.
    """
    configured = settings or Settings()
    libpq_variables.hide_from_libpq()
    with ExitStack() as stack:
        needs_sample = source and configured.uses_sample
        if needs_sample:
            _refuse_name_without_dsn(configured)
        # If there are several homeservers, the settings of each homeserver name its catalog.
        has_catalog = configured.lakehouse_catalog_uri or configured.lakehouse_homeservers
        if has_catalog and not needs_sample:
            yield configured
            return
        server = stack.enter_context(run_embedded_server(configured))
        defaults: dict[str, object] = {}
        with file_lock.exclusive_lock(configured.lakehouse_home / "services.lock"):
            if not configured.lakehouse_catalog_uri:
                lake = _lake_suffix(configured) or (_read_latest_lake(configured) if latest else "")
                defaults["lakehouse_catalog_uri"] = roles.ensure_owner(server, CATALOG_DATABASE + lake)
                defaults["lakehouse_warehouse"] = _choose_warehouse(configured, lake)
            if needs_sample:
                sample.restore_sample(server)
                defaults["synapse_dsn"] = roles.ensure_reader(server, sample.SAMPLE_DATABASE)
                defaults["synapse_server_name"] = sample.read_server_name()
                defaults["synapse_config"] = configured.synapse_config or sample.SAMPLE_CONFIG
        yield configured.model_copy(update=defaults)


def remember_lake(settings: Settings) -> None:
    """Record the lake of ``settings`` as the default for commands that run without a configured homeserver."""
    if not settings.lakehouse_catalog_uri:
        (settings.lakehouse_home / _LATEST).write_text(_lake_suffix(settings), encoding="utf-8")


def _read_latest_lake(settings: Settings) -> str:
    place = settings.lakehouse_home / _LATEST
    try:
        return place.read_text(encoding="utf-8") if place.exists() else ""
    except ValueError:
        raise LocalServicesError(
            f"{place} is damaged: it is not UTF-8. Delete the file, and run `make run` again."
        ) from None


def _lake_suffix(settings: Settings) -> str:
    """Return the suffix for the names of a homeserver's catalog and warehouse; empty for the sample."""
    name = settings.synapse_server_name
    if not name or (settings.uses_sample and name == sample.read_server_name()):
        return ""
    return "-" + re.sub(r"[^a-z0-9.-]", "_", name.lower())[:_NAME_LENGTH]


def _choose_warehouse(settings: Settings, lake: str) -> str:
    """Return the folder of the lake: a sub-folder of the configured warehouse, if a warehouse is configured."""
    if not settings.lakehouse_warehouse:
        return settings.warehouse + lake
    root = settings.lakehouse_warehouse.rstrip("/")
    return f"{root}/lake{lake}" if lake else root


def create_home(settings: Settings) -> None:
    """Create LAKEHOUSE_HOME; raise :class:`LocalServicesError` if it cannot be created or written to."""
    try:
        settings.lakehouse_home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalServicesError(
            f"LAKEHOUSE_HOME={settings.lakehouse_home} cannot be created ({error.strerror}). Set it to a folder that "
            "this user may create and write to."
        ) from None
    if not os.access(settings.lakehouse_home, os.W_OK | os.X_OK):
        raise LocalServicesError(
            f"LAKEHOUSE_HOME={settings.lakehouse_home} cannot be written to. Let this user write there, or set it to "
            "another folder."
        )


def _refuse_name_without_dsn(settings: Settings) -> None:
    if settings.synapse_state_dsn:
        raise LocalServicesError("SYNAPSE_STATE_DSN is set, but SYNAPSE_DSN is not. Set both, or remove both.")
    if settings.synapse_server_name not in (None, sample.read_server_name()):
        raise LocalServicesError(
            f"SYNAPSE_SERVER_NAME is {settings.synapse_server_name}, but SYNAPSE_DSN is not set. The shipped sample "
            "would be published as the data of this homeserver. Set both settings, or remove both to use the sample."
        )


@contextmanager
def run_embedded_server(settings: Settings) -> Iterator[embedded_postgres.EmbeddedServer]:
    """Yield the PostgreSQL server in LAKEHOUSE_HOME.

    :raises LocalServicesError: when LAKEHOUSE_HOME cannot be created.
    """
    create_home(settings)
    # With a longer delay, runs would wait for the WAL flush (postgres/snapshot/wal_flush.py): nothing writes to the
    # sample.
    with embedded_postgres.run_server(
        settings.lakehouse_home / "postgres", options=["wal_writer_delay=10ms"]
    ) as server:
        yield server
