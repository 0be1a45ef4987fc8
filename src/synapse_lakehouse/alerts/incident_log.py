"""The log of incidents and of the messages that each sink received, in ``audit.incidents``."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.alerts.incidents import IncidentEvent
from synapse_lakehouse.audit import store

INCIDENTS_TABLE: Final = "audit.incidents"


@dataclass(frozen=True)
class IncidentLog:
    """``events``: all events, by time. ``deliveries``: pairs of an event's ID and a sink that received its message."""

    events: tuple[IncidentEvent, ...]
    deliveries: frozenset[tuple[str, str]]


def read_incident_log(catalog: Catalog) -> IncidentLog:
    """Return the whole log, which is short."""
    rows = catalog.load_table(INCIDENTS_TABLE).scan().to_arrow().sort_by("at").to_pylist()
    return IncidentLog(
        tuple(_to_event(row) for row in rows if not row["sink"]),
        frozenset((row["id"], row["sink"]) for row in rows if row["sink"]),
    )


def append_events(catalog: Catalog, events: Collection[IncidentEvent]) -> None:
    """Append begin and end events."""
    if events:
        store.append_audit_rows(catalog, INCIDENTS_TABLE, [_to_row(event) for event in events])


def append_deliveries(catalog: Catalog, events: Collection[IncidentEvent], sink: str) -> None:
    """Record that ``sink`` accepted the messages about ``events``."""
    if events:
        store.append_audit_rows(catalog, INCIDENTS_TABLE, _delivery_rows(events, sink))


def register_sink(catalog: Catalog, past: Collection[IncidentEvent], sink: str) -> set[str]:
    """Record a new ``sink``, and the messages about ``past`` as delivered to it; return the IDs of ``past``."""
    store.append_audit_rows(
        catalog, INCIDENTS_TABLE, [{"id": "", "sink": sink, "at": datetime.now(UTC)}, *_delivery_rows(past, sink)]
    )
    return {event.id for event in past}


def _delivery_rows(events: Collection[IncidentEvent], sink: str) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    return [_to_row(event) | {"sink": sink, "at": now} for event in events]


def _to_row(event: IncidentEvent) -> dict[str, Any]:
    return asdict(event) | {"kind": str(event.kind)}


def _to_event(row: dict[str, Any]) -> IncidentEvent:
    # Rows of earlier versions lack the column consequence.
    own = {"consequence": row.get("consequence") or "", "details": ""}
    return IncidentEvent(**{field.name: row.get(field.name) for field in fields(IncidentEvent)} | own)
