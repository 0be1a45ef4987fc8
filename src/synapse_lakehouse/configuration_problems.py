"""Check the operator's configuration, for `open_run` and `lakehouse doctor`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.compressor import settings as compressor
from synapse_lakehouse.config import homeserver_yaml
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.spark import spark_network
from synapse_lakehouse.java import jars, runtime
from synapse_lakehouse.room_state import retention
from synapse_lakehouse.streams.checks import operator_acknowledgements
from synapse_lakehouse.streams.positions import configured_writers


@dataclass(frozen=True)
class ConfigurationProblem:
    """An invalid part of the configuration. ``stops_runs``: whether runs cannot start because of it."""

    subject: str
    message: str
    stops_runs: bool = True


def _server_name(_: Catalogue, settings: Settings) -> None:
    """Compare SYNAPSE_CONFIG with SYNAPSE_SERVER_NAME. They differ after a copy of another server's settings."""
    name = homeserver_yaml.read_server_name(settings.synapse_config, LakehouseError)
    if name and settings.synapse_server_name and name != settings.synapse_server_name:
        raise LakehouseError(
            f"SYNAPSE_CONFIG={settings.synapse_config} has the server_name {name}, but SYNAPSE_SERVER_NAME is "
            f"{settings.synapse_server_name}. Stream writers and retention of another server would apply. Correct one "
            "of the settings."
        )


def _databases(_: Catalogue, settings: Settings) -> None:
    if not settings.synapse_state_dsn:
        homeserver_yaml.require_one_database(settings.synapse_config, LakehouseError)


def _writers(declared: Catalogue, settings: Settings) -> None:
    configured_writers.read_configured_writers(declared, settings.lakehouse_stream_writers, settings.synapse_config)


def _acknowledged(declared: Catalogue, settings: Settings) -> None:
    operator_acknowledgements.parse_acknowledged_ids(declared, settings.lakehouse_acknowledged_ids)


_RUN_CHECKS: Final[dict[str, Callable[[Catalogue, Settings], object]]] = {
    "server name": _server_name,
    "databases": _databases,
    "stream writers": _writers,
    "acknowledged ids": _acknowledged,
    "retention": lambda _, settings: retention.read_retention(settings),
    "Java options": lambda _, settings: runtime.check_driver_options(settings),
    "Spark packages": lambda _, settings: jars.parse_packages(settings.lakehouse_spark_packages),
    "Spark secret": lambda _, settings: spark_network.check_secret_file(settings),
}
"""Functions that parse the settings of a run, by subject."""


def find_problems(declared: Catalogue, settings: Settings) -> Iterator[ConfigurationProblem]:
    """Yield the problems of the configuration. Problems of the compressor do not stop other runs.

    Each message occurs once, even if it concerns several subjects, for example a file that all of them need.
    """
    reported = set[str]()
    for subject, read in _RUN_CHECKS.items():
        try:
            read(declared, settings)
        except LakehouseError as error:
            if str(error) not in reported:
                reported.add(str(error))
                yield ConfigurationProblem(subject, str(error))
    try:
        compressor.load_compressor_settings(settings)
    except LakehouseError as error:
        if str(error) not in reported:
            yield ConfigurationProblem("state compressor", str(error), stops_runs=False)
