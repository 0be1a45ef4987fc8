"""Who writes which stream, as the operator configured it."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.homeserver_yaml import read_section
from synapse_lakehouse.errors import LakehouseError

MASTER: Final = "master"
"""instance_name of Synapse's main process."""


class StreamWritersError(LakehouseError):
    """LAKEHOUSE_STREAM_WRITERS or the stream_writers of SYNAPSE_CONFIG cannot be understood."""


def read_configured_writers(catalogue: Catalogue, setting: str, config: Path | None) -> dict[str, frozenset[str]]:
    """Configured writers by stream; a stream of which nothing is known is absent.

    :param setting: LAKEHOUSE_STREAM_WRITERS, as ``events:persister1,persister2 receipts:worker1``; it wins.
    :param config: a homeserver.yaml, whose ``stream_writers`` are taken; the main process writes streams that it does
        not name (``synapse.config.workers.WriterLocations``).
    :raises WritersError: on bad syntax, an unknown stream, or a file that cannot be read.
    """
    by_key = _from_config(config) | _from_setting(setting)
    keys = {stream.writers for stream in catalogue.streams} | {"typing"}
    if unknown := set(by_key) - keys - {stream.name for stream in catalogue.streams}:
        raise StreamWritersError(
            f"Writers are given for {', '.join(sorted(unknown))}, which Synapse does not know as streams with writers. "
            f"Known: {', '.join(sorted(keys - {MASTER, 'any'}))}. Correct LAKEHOUSE_STREAM_WRITERS or SYNAPSE_CONFIG."
        )
    found = {}
    for stream in catalogue.streams:
        writers = by_key.get(stream.name) or by_key.get(stream.writers)
        if stream.writers == MASTER or (config and not writers):
            writers = frozenset({MASTER})
        if writers and stream.stream_positions:
            found[stream.name] = writers
    return found


def _from_setting(setting: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for part in setting.split():
        stream, colon, writers = part.partition(":")
        names = frozenset(filter(None, writers.split(",")))
        if not (stream and colon and names):
            raise StreamWritersError(
                f"LAKEHOUSE_STREAM_WRITERS has {part!r}, which is not of the form stream:writer1,writer2. "
                "Separate several streams by spaces."
            )
        if stream in found:
            raise StreamWritersError(
                f"LAKEHOUSE_STREAM_WRITERS names {stream} twice. Give all of its writers at once, as "
                f"{stream}:{','.join(sorted(found[stream] | names))}."
            )
        found[stream] = names
    return found


def default_writer(writers: Collection[str]) -> str:
    """Who wrote rows that name no writer, of a stream that has these ``writers``.

    The main process did, when there was no other. But Synapse never names the writer of account data, which is
    whichever one process writes it.
    """
    return next(iter(writers)) if len(writers) == 1 else MASTER


def _from_config(path: Path | None) -> dict[str, frozenset[str]]:
    found = {}
    for stream, given in read_section(path, "stream_writers", StreamWritersError).items():
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise StreamWritersError(
                f"stream_writers.{stream} in SYNAPSE_CONFIG should be the name of a worker, or a list of names."
            )
        found[str(stream)] = frozenset(names)
    return found
