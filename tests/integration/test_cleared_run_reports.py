"""Reports on a release contain only rows of its published try, also after a run was cleared."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli.runs import release_summary
from synapse_lakehouse.cli.streams import gaps, positions
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables

DAY, HOUR = datetime(2026, 11, 17, tzinfo=UTC), timedelta(hours=1)
FIRST, SECOND, THIRD = (Run(name, DAY, DAY + 24 * HOUR) for name in ("first", "second", "third"))


@pytest.fixture
def lake(new_lake: Callable[..., Settings]) -> Settings:
    """Return an empty lake."""
    return new_lake()


@pytest.fixture
def catalog(lake: Settings) -> Iterator[Catalog]:
    with closing(open_catalog(lake)) as catalog:
        tables.ensure_audit_tables(catalog)
        yield catalog


def append_try(catalog: Catalog, run: Run, hour: int, **faults: str) -> None:
    """Append the audit rows of a try; ``hour`` is the safe bound, and ``faults`` maps streams to the class of a gap."""
    streams = {name: {"stream": name, "measured_at": DAY + hour * HOUR} for name in ("events", "receipts")}
    bounds = [row | {"safe_bound": hour, "rule": "configured", "sequence_is_called": True} for row in streams.values()]
    gap = {"first_id": hour, "last_id": hour, "flags": []}
    gap_rows = [row | gap | {"class": faults[name]} for name, row in streams.items() if name in faults]
    store.append_audit_rows(catalog, "audit.stream_positions", bounds, run)
    if gap_rows:
        measured_at = {"measured_at": DAY + hour * HOUR + timedelta(minutes=1)}
        store.append_audit_rows(catalog, "audit.stream_gaps", [row | measured_at for row in gap_rows], run)
    ledger_row = {"table_name": "events", "extent": "changed", "rows_read": hour, "snapshot_id": hour}
    store.append_audit_rows(catalog, "audit.ledger", [ledger_row | {"written_at": DAY + hour * HOUR}], run)
    check = {"stage": "bronze", "subject": f"hour {hour}", "success": False, "checked_at": DAY + hour * HOUR}
    store.append_audit_rows(catalog, "audit.checks", [check], run)


def publish(catalog: Catalog, run: Run, hour: int, *, accepted: int | None = None, snapshot: int) -> None:
    """Append a release of a run; the release is a compaction if its content was ``accepted`` in an earlier hour."""
    releases = store.read_releases(catalog)
    maps: dict[str, Any] = {"tables": [("bronze.events", snapshot)], "positions": [], "views": []}
    times = {"published_at": DAY + hour * HOUR, "accepted_at": DAY + (accepted or hour) * HOUR}
    store.append_audit_rows(catalog, "audit.releases", [{"release": len(releases) + 1} | maps | times], run)


def list_gaps(lake: Settings, number: int | None = None) -> list[tuple[str, str, int, int | None]]:
    """Return stream, class, hour and release of the reported gaps."""
    with duckdb_reader.open_duckdb(lake) as connection:
        release = duckdb_reader.get_release(connection, lake, number)
        reported_gaps = gaps.read_gaps(connection, lake, release, is_latest=number is None)
    return [(item.stream, item.kind, item.first_id, item.release) for item in reported_gaps]


def test_gaps_are_those_of_the_published_try(lake: Settings, catalog: Catalog) -> None:
    append_try(catalog, FIRST, 1, events="late", receipts="rolled_back")
    append_try(catalog, FIRST, 2, receipts="in_flight")
    publish(catalog, FIRST, 3, snapshot=2)
    append_try(catalog, FIRST, 4, events="lost")
    assert list_gaps(lake, 1) == [("receipts", "in_flight", 2, 1)]
    assert list_gaps(lake) == [("events", "lost", 4, None), ("receipts", "in_flight", 2, 1)]

    append_try(catalog, SECOND, 5, receipts="rolled_back")
    publish(catalog, SECOND, 6, snapshot=5)
    assert list_gaps(lake) == [("receipts", "rolled_back", 5, 2)]
    publish(catalog, SECOND, 7, accepted=6, snapshot=50)
    assert list_gaps(lake) == [("receipts", "rolled_back", 5, 2)]

    append_try(catalog, FIRST, 8, events="rolled_back")
    publish(catalog, FIRST, 9, snapshot=8)
    append_try(catalog, FIRST, 10, events="purged")
    assert list_gaps(lake) == [("receipts", "rolled_back", 5, 2), ("events", "rolled_back", 8, 4)]
    assert list_gaps(lake, 3) == list_gaps(lake, 2) == [("receipts", "rolled_back", 5, 2)]
    append_try(catalog, THIRD, 11, events="in_flight")
    assert list_gaps(lake) == [("receipts", "rolled_back", 5, 2), ("events", "rolled_back", 8, 4)]


def test_reports_are_those_of_the_published_try(lake: Settings, catalog: Catalog) -> None:
    append_try(catalog, FIRST, 1)
    publish(catalog, FIRST, 2, snapshot=1)
    append_try(catalog, FIRST, 3)
    with duckdb_reader.open_duckdb(lake) as connection:
        release = duckdb_reader.get_release(connection, lake)
        (events, _), summary = (
            positions.read_positions(connection, lake, release),
            release_summary.read_summary(connection, lake, release),
        )
    assert (events.stream, events.bound) == ("events", 1)
    assert [table.rows_read for table in summary.tables] == [1]
    assert [warning.subject for warning in summary.warnings] == ["hour 1"]
