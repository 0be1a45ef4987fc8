"""The log of incidents, and of whom they were told: ``audit.incidents``."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.alerts.incidents import Event, Kind
from synapse_lakehouse.audit import store

TABLE: Final = "audit.incidents"


@dataclass(frozen=True)
class Log:
    """``events``: oldest first. ``told``: pairs of an event's id and the sink that took it."""

    events: tuple[Event, ...]
    told: frozenset[tuple[str, str]]


def read(catalog: Catalog) -> Log:
    """All of the log: incidents are few."""
    rows = catalog.load_table(TABLE).scan().to_arrow().sort_by("at").to_pylist()
    return Log(
        tuple(_event(row) for row in rows if not row["sink"]),
        frozenset((row["id"], row["sink"]) for row in rows if row["sink"]),
    )


def record(catalog: Catalog, events: Collection[Event]) -> None:
    """Append what begins and what ends."""
    if events:
        store.append(catalog, TABLE, [_row(one) for one in events])


def record_told(catalog: Catalog, events: Collection[Event], sink: str) -> None:
    """Append that ``sink`` took the news of ``events``."""
    if events:
        store.append(catalog, TABLE, _told(events, sink))


def introduce(catalog: Catalog, past: Collection[Event], sink: str) -> set[str]:
    """Append that there is a new ``sink``, which is not to hear of ``past``: the ids of what it need not be told."""
    store.append(catalog, TABLE, [{"id": "", "sink": sink, "at": datetime.now(UTC)}, *_told(past, sink)])
    return {one.id for one in past}


def _told(events: Collection[Event], sink: str) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    return [_row(one) | {"sink": sink, "at": now} for one in events]


def _row(event: Event) -> dict[str, Any]:
    return asdict(event) | {"kind": event.kind.value}


def _event(row: dict[str, Any]) -> Event:
    # Earlier versions kept no consequence apart from what is said.
    more = {"kind": Kind(row["kind"]), "consequence": row.get("consequence") or ""}
    return Event(**{field.name: row.get(field.name) for field in fields(Event)} | more)
