"""From what is wrong to what people are told."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incident_log import Log
from synapse_lakehouse.alerts.incidents import Finding, changes, current, goes_on_elsewhere
from synapse_lakehouse.alerts.message import messages
from synapse_lakehouse.alerts.sinks import MOST_SECONDS, Sink, sinks
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local import child_processes

NOBODY: Final = "nobody"
"""Stands for a sink where none is configured, so that one configured later is not flooded with the past."""

_OWN_TURN: Final = timedelta(minutes=3)
"""So long news is left to the report that recorded it, then to whichever comes first: others that run at the same time
must not tell it, too."""


def report(settings: Settings, catalog: Catalog, scope: str, found: Collection[Finding], page: str = "") -> None:
    """Record what began and what ended in ``scope`` now that ``found`` is all that is wrong there; tell people.

    What several scopes find at once is one incident: told when the first finds it, and when it is over for the last.
    News that a sink did not take is tried again with the next report of its scope, and after minutes with any, of which
    then one at a time tells it, as far as they share LAKEHOUSE_HOME.

    :param page: URL of the page that shows more.
    """
    with child_processes.first(settings.lakehouse_home / "alerts.lock") as is_first:
        if not catalog.table_exists(incident_log.TABLE):
            # The first run of a lake may be refused before it makes any table.
            tables.ensure_audit(catalog)
        book = incident_log.read(catalog)
        now = datetime.now(UTC)
        new = changes(current(book.events, scope), found, scope, page, now)
        incident_log.record(catalog, new)
        events = (*book.events, *new)
        turn = {one.id for one in events if (is_first if now - one.at > _OWN_TURN else one.scope == scope)}
        no_news = {one.id for one in new if goes_on_elsewhere(book.events, one)}
        _tell(settings, catalog, Log(events, book.told), turn, no_news)


def _tell(settings: Settings, catalog: Catalog, book: Log, turn: Collection[str], no_news: Collection[str]) -> None:
    """Tell every sink what it was not told yet, of the events in ``turn``, but for ``no_news``."""
    names: dict[str, Sink | None] = {sink.name: sink for sink in sinks(settings)} or {NOBODY: None}
    told_at_all = {event for event, _ in book.told}
    for name, sink in names.items():
        known = {event for event, to in book.told if to == name}
        if not known:
            known = incident_log.introduce(catalog, [one for one in book.events if one.id in told_at_all], name)
        untold = [one for one in book.events if one.id not in known]
        incident_log.record_told(catalog, [one for one in untold if sink is None or one.id in no_news], name)
        if sink is None:
            continue
        due = [one for one in untold if one.id in turn and one.id not in no_news]
        end = monotonic() + MOST_SECONDS
        for message in messages(due, str(settings.synapse_server_name), settings.lakehouse_runbooks.rstrip("/")):
            if monotonic() < end and sink.take(message, end - monotonic()):
                incident_log.record_told(catalog, message.events, name)
