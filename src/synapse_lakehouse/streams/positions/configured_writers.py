"""Read the configured writers of each stream."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.homeserver_yaml import read_section
from synapse_lakehouse.errors import LakehouseError

MASTER: Final = "master"
"""instance_name of Synapse's main process."""


class StreamWritersError(LakehouseError):
    """LAKEHOUSE_STREAM_WRITERS, or ``stream_writers`` in SYNAPSE_CONFIG, is invalid."""


def read_configured_writers(catalogue: Catalogue, setting: str, config: Path | None) -> dict[str, frozenset[str]]:
    """Return the configured writers by stream. A stream without a known configuration is absent.

    :param setting: LAKEHOUSE_STREAM_WRITERS, such as ``events:persister1,persister2``. It overrides the file.
    :param config: a homeserver.yaml with ``stream_writers``. The main process writes the streams that
        ``stream_writers`` does not name (``synapse.config.workers.WriterLocations``).
    :raises StreamWritersError: on bad syntax, an unknown stream in the setting, or a file that cannot be read.
    """
    by_stream = _from_setting(setting)
    keys = {stream.writers for stream in catalogue.streams} | {"typing"}
    if unknown := set(by_stream) - keys - {stream.name for stream in catalogue.streams}:
        raise StreamWritersError(
            f"LAKEHOUSE_STREAM_WRITERS names {', '.join(sorted(unknown))}, but Synapse has no such streams with "
            f"writers. The possible names are {', '.join(sorted(keys - {MASTER, 'any'}))}."
        )
    # Synapse refuses unknown keys itself, so unknown keys of its file are streams of a later release.
    by_key = _from_config(config) | by_stream
    configured = {}
    for stream in catalogue.streams:
        writers = by_key.get(stream.name) or by_key.get(stream.writers)
        if stream.writers == MASTER or (config and not writers):
            writers = frozenset({MASTER})
        if writers and stream.stream_positions:
            configured[stream.name] = writers
    return configured


def _from_setting(setting: str) -> dict[str, frozenset[str]]:
    by_stream: dict[str, frozenset[str]] = {}
    for part in setting.split():
        stream, colon, writers = part.partition(":")
        names = frozenset(filter(None, writers.split(",")))
        if not (stream and colon and names):
            raise StreamWritersError(
                f"LAKEHOUSE_STREAM_WRITERS contains {part!r}, which is not of the form stream:writer1,writer2. "
                "Separate several streams by spaces."
            )
        if stream in by_stream:
            raise StreamWritersError(
                f"LAKEHOUSE_STREAM_WRITERS contains {stream} twice. List all of its writers at once: "
                f"{stream}:{','.join(sorted(by_stream[stream] | names))}."
            )
        by_stream[stream] = names
    return by_stream


def default_writer(writers: Collection[str]) -> str:
    """Return the writer of rows that record no writer: the only one of ``writers``, otherwise the main process.

    Synapse never records the writer of account data, which may be a worker.
    """
    return next(iter(writers)) if len(writers) == 1 else MASTER


def _from_config(path: Path | None) -> dict[str, frozenset[str]]:
    by_stream = {}
    for stream, value in read_section(path, "stream_writers", StreamWritersError).items():
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise StreamWritersError(
                f"stream_writers.{stream} in SYNAPSE_CONFIG must be the name of a worker, or a list of names."
            )
        by_stream[str(stream)] = frozenset(names)
    return by_stream
