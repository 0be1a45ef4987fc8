"""From what is wrong to what people are told."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.alerts import log
from synapse_lakehouse.alerts.incidents import Finding, changes, current
from synapse_lakehouse.alerts.log import Log
from synapse_lakehouse.alerts.message import messages
from synapse_lakehouse.alerts.sinks import Sink, sinks
from synapse_lakehouse.settings import Settings

NOBODY: Final = "nobody"
"""Stands for a sink where none is configured, so that one configured later is not flooded with the past."""


def report(settings: Settings, catalog: Catalog, scope: str, found: Collection[Finding], page: str = "") -> None:
    """Record what began and what ended in ``scope`` now that ``found`` is all that is wrong there; tell people.

    News that a sink did not take is tried again with the next report, whatever its scope.

    :param page: URL of the page that shows more.
    """
    book = log.read(catalog)
    new = changes(current(book.events, scope), found, scope, page, datetime.now(UTC))
    log.record(catalog, new)
    _tell(settings, catalog, Log((*book.events, *new), book.told))


def _tell(settings: Settings, catalog: Catalog, book: Log) -> None:
    """Tell every sink what it was not told yet."""
    names: dict[str, Sink | None] = {sink.name: sink for sink in sinks(settings)} or {NOBODY: None}
    told_at_all = {event for event, _ in book.told}
    for name, sink in names.items():
        known = {event for event, to in book.told if to == name}
        if not known:
            known = log.introduce(catalog, [one for one in book.events if one.id in told_at_all], name)
        untold = [one for one in book.events if one.id not in known]
        if sink is None:
            log.record_told(catalog, untold, name)
            continue
        for message in messages(untold, str(settings.synapse_server_name), settings.lakehouse_runbooks.rstrip("/")):
            if sink.take(message):
                log.record_told(catalog, message.events, name)
