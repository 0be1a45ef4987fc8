"""Turn findings into incidents and deliver messages about them."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse import file_lock
from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incident_log import IncidentLog
from synapse_lakehouse.alerts.incidents import (
    NOTICE_KINDS,
    AlertFinding,
    IncidentEvent,
    compute_incident_events,
    is_open_in_another_scope,
    list_open_incidents,
)
from synapse_lakehouse.alerts.message import build_messages, name_homeserver
from synapse_lakehouse.alerts.sinks import MAX_SECONDS, AlertSink, load_sinks
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables

NO_SINK: Final = "none"
"""Sink name of deliveries while no sink is configured. Such messages count as delivered: a sink that is
configured later gets no old messages."""

_OWN_SCOPE_TIME: Final = timedelta(minutes=3)
"""Time after an incident event in which only reports of the event's scope deliver its message, so that two simultaneous
reports do not deliver it twice. After this time, any report delivers it."""


def update_incidents(
    settings: Settings, catalog: Catalog, scope: str, findings: Collection[AlertFinding], page: str = ""
) -> None:
    """Record incidents that begin and end in ``scope``, and send messages.

    A problem that several scopes report is one incident. When the first scope reports the problem, a message says that
    the incident began. When no scope reports the problem any longer, a message says that the incident ended. If a sink
    does not accept a message, the next report of the same scope sends the message again. After some minutes, a report
    of any scope sends the message again, unless the message is a notice. Only one process of a homeserver at a time
    sends such late messages.

    :param findings: all present problems of the scope.
    :param page: URL with details.
    """
    with file_lock.try_lock(settings.lake_folder / "alerts.lock") as is_first:
        if not catalog.table_exists(incident_log.INCIDENTS_TABLE):
            # The table is missing if the first run of the lake failed before it created tables.
            tables.ensure_audit_tables(catalog)
        log = incident_log.read_incident_log(catalog)
        now = datetime.now(UTC)
        new = compute_incident_events(list_open_incidents(log.events, scope), findings, scope, page, now)
        incident_log.append_events(catalog, new)
        details = {(str(finding.kind), finding.subject): finding.details for finding in findings}
        events = tuple(
            replace(event, details=details.get((event.kind, event.subject), "")) for event in (*log.events, *new)
        )
        due = {event.id for event in events if (is_first if _is_due_for_all(event, now) else event.scope == scope)}
        silent = {
            event.id
            for event in new
            if (event.kind in NOTICE_KINDS and not event.begins) or is_open_in_another_scope(log.events, event)
        }
        _deliver(settings, catalog, IncidentLog(events, log.deliveries), due, silent)


def send_unrecorded(
    settings: Settings, homeserver: str, scope: str, findings: Collection[AlertFinding], page: str = ""
) -> None:
    """Send messages about a homeserver whose lake is unknown. Record no incidents: the log is in the lake.

    :param settings: settings with the sinks.
    """
    events = compute_incident_events([], findings, scope, page, datetime.now(UTC))
    for sink in load_sinks(settings):
        for message in build_messages(events, homeserver, settings.lakehouse_runbooks.rstrip("/")):
            sink.send(message, MAX_SECONDS)


def _is_due_for_all(event: IncidentEvent, now: datetime) -> bool:
    # Only a report of the notice's own scope has the details of the notice.
    return now - event.at > _OWN_SCOPE_TIME and event.kind not in NOTICE_KINDS


def _deliver(
    settings: Settings, catalog: Catalog, log: IncidentLog, due: Collection[str], silent: Collection[str]
) -> None:
    """Send to each sink the events in ``due`` that the sink has not received, except the events in ``silent``."""
    names: dict[str, AlertSink | None] = {sink.name: sink for sink in load_sinks(settings)} or {NO_SINK: None}
    delivered_anywhere = {event_id for event_id, _ in log.deliveries}
    for name, sink in names.items():
        delivered = {event_id for event_id, receiver in log.deliveries if receiver == name}
        if not delivered:
            past = [event for event in log.events if event.id in delivered_anywhere]
            delivered = incident_log.register_sink(catalog, past, name)
        pending = [event for event in log.events if event.id not in delivered]
        skipped = [event for event in pending if sink is None or event.id in silent]
        incident_log.append_deliveries(catalog, skipped, name)
        if sink is None:
            continue
        ready = [event for event in pending if event.id in due and event.id not in silent]
        end = monotonic() + MAX_SECONDS
        homeserver = name_homeserver(settings.lakehouse_homeserver, settings.synapse_server_name)
        for message in build_messages(ready, homeserver, settings.lakehouse_runbooks.rstrip("/")):
            if monotonic() < end and sink.send(message, end - monotonic()):
                incident_log.append_deliveries(catalog, message.events, name)
