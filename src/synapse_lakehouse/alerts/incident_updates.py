"""Turn findings into incidents and deliver messages about them."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse import file_lock
from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incident_log import IncidentLog
from synapse_lakehouse.alerts.incidents import (
    AlertFinding,
    compute_incident_events,
    is_open_in_another_scope,
    list_open_incidents,
)
from synapse_lakehouse.alerts.message import build_messages
from synapse_lakehouse.alerts.sinks import MAX_SECONDS, AlertSink, load_sinks
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables

NO_SINK: Final = "nobody"
"""Name under which deliveries are recorded without a configured sink, so that a later sink gets no old messages."""

_OWN_TURN: Final = timedelta(minutes=3)
"""For this long only reports of its scope deliver a message; later any report does. So two simultaneous reports
do not deliver it twice."""


def update_incidents(
    settings: Settings, catalog: Catalog, scope: str, found: Collection[AlertFinding], page: str = ""
) -> None:
    """Record which incidents begin and end in ``scope``, where ``found`` is every present problem, and send messages.

    A problem that several scopes report is one incident: the first report sends its begin, the last one its end. A
    message that a sink did not accept is sent again with the next report of its scope, and after minutes with any
    report. Of the processes that share LAKEHOUSE_HOME one at a time sends such messages.

    :param page: URL with details.
    """
    with file_lock.try_lock(settings.lakehouse_home / "alerts.lock") as is_first:
        if not catalog.table_exists(incident_log.INCIDENTS_TABLE):
            # The first run of a lake may fail before it creates a table.
            tables.ensure_audit_tables(catalog)
        book = incident_log.read_incident_log(catalog)
        now = datetime.now(UTC)
        new = compute_incident_events(list_open_incidents(book.events, scope), found, scope, page, now)
        incident_log.append_events(catalog, new)
        events = (*book.events, *new)
        turn = {one.id for one in events if (is_first if now - one.at > _OWN_TURN else one.scope == scope)}
        no_news = {one.id for one in new if is_open_in_another_scope(book.events, one)}
        _tell(settings, catalog, IncidentLog(events, book.told), turn, no_news)


def _tell(
    settings: Settings, catalog: Catalog, book: IncidentLog, turn: Collection[str], no_news: Collection[str]
) -> None:
    """Send each sink the events in ``turn`` that it has not received, except ``no_news``."""
    names: dict[str, AlertSink | None] = {sink.name: sink for sink in load_sinks(settings)} or {NO_SINK: None}
    told_at_all = {event for event, _ in book.told}
    for name, sink in names.items():
        known = {event for event, to in book.told if to == name}
        if not known:
            known = incident_log.register_sink(catalog, [one for one in book.events if one.id in told_at_all], name)
        untold = [one for one in book.events if one.id not in known]
        incident_log.append_deliveries(catalog, [one for one in untold if sink is None or one.id in no_news], name)
        if sink is None:
            continue
        due = [one for one in untold if one.id in turn and one.id not in no_news]
        end = monotonic() + MAX_SECONDS
        for message in build_messages(due, str(settings.synapse_server_name), settings.lakehouse_runbooks.rstrip("/")):
            if monotonic() < end and sink.take(message, end - monotonic()):
                incident_log.append_deliveries(catalog, message.events, name)
