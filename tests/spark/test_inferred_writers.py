"""Writers without configuration are inferred from stored positions and rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from expectations import validate
from expectations.stream_expectations import ExpectConfiguredWriters, ExpectNoProvisionalBound
from expectations.table_expectations import ExpectKnownSchema
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.streams.gaps.classify import FAULT_CLASSES, PROVISIONAL_FLAG
from synapse_lakehouse.streams.pipeline import measure
from tests.support.incremental_lake import open_incremental_lake
from tests.support.stream_lake import Database, MeasuredLake

WRITERS = "backfill:persister2 receipts:worker1 account_data:worker1"
TABLES = ("account_data", "room_account_data", "room_tags_revisions", "stream_positions")


def test_rows_without_a_writer_make_no_writer_missing(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synapse never names the writer of account data, which is a worker here."""
    declared = catalogue.load_catalogue()
    small_catalogue = declared.model_copy(
        update={"tables": tuple(map(declared.table, TABLES)), "streams": (declared.stream("account_data"),)}
    )
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: small_catalogue)
    with open_incremental_lake(new_lake(synapse_dsn=source_copy, synapse_config=None)) as lake:
        app = lake.app()
        lake.copy(app)
        measure(app).append(app.catalog, app.run)
        (position,) = store.read_run_rows(app.catalog, "audit.stream_positions", app.run.run_id)
        facts = store.read_run_rows(app.catalog, "audit.stream_facts", app.run.run_id)
    assert (position["rule"], position["missing_writers"]) == ("provisional", [])
    assert position["safe_bound"] is not None
    assert {writer for fact in facts for writer, _ in fact["rows_by_writer"]} == {"worker1"}


def test_counted_rows_without_a_writer_are_the_only_writer_s(
    new_lake: Callable[..., Settings], source_copy: str
) -> None:
    """Old versions of Synapse stored messages to devices without the writer."""
    with open_incremental_lake(new_lake(synapse_dsn=source_copy, synapse_config=None)) as lake:
        app = lake.app()
        tables.ensure_audit_tables(app.catalog)
        with psycopg.connect(source_copy) as connection:
            connection.execute("update device_inbox set instance_name = null where stream_id % 2 = 0")
            count = connection.execute("select count(*) from device_inbox").fetchone()
            record_measured_tables(app, catalogue.load_catalogue(), connection)
            connection.rollback()
        facts = store.read_run_rows(app.catalog, "audit.stream_facts", app.run.run_id)
    assert count
    assert [fact["rows_by_writer"] for fact in facts if fact["table_name"] == "device_inbox"] == [[("worker1", *count)]]


@dataclass
class MeasuredEvents:
    """One run's row of ``audit.stream_positions`` for the stream ``events``, its gaps, and its warnings."""

    position: dict[str, Any]
    faults: set[tuple[str, int, tuple[str, ...]]]
    warnings: set[str]

    @property
    def bound(self) -> tuple[int | None, str, str | None]:
        """The safe bound, its rule, and the rule of the previous bound."""
        return self.position["safe_bound"], self.position["rule"], self.position["previous_rule"]


def measure_events(lake: MeasuredLake) -> MeasuredEvents:
    """Run, validate and publish; return the run's rows of events."""
    lake.examine()
    app = lake.app()
    lake.runs -= 1
    run = Run(f"test_{lake.runs}", app.run.start, app.run.end)
    result = validate.validate_bronze(lake.settings, app.catalog, run)
    assert result.failed == 0, result.failures
    rows = store.read_run_rows(app.catalog, "audit.stream_positions", run.run_id)
    gaps = app.catalog.load_table("audit.stream_gaps").scan().to_arrow().to_pylist()
    return MeasuredEvents(
        next(row for row in rows if row["stream"] == "events"),
        {
            (row["class"], row["first_id"], tuple(row["flags"]))
            for row in gaps
            if row["run_id"] == run.run_id and row["stream"] == "events" and row["class"] in FAULT_CLASSES
        },
        # The catalogue of this lake lacks most tables.
        {check.type for check in result.warnings} - {ExpectKnownSchema.expectation_type},
    )


def test_a_provisional_bound_blocks_nothing(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    """A new worker, ep3, has two transactions open in the first run. One ends before the next run, one much later."""
    lake, source = open_measured_lake
    lake.settings = lake.settings.model_copy(update={"lakehouse_stream_writers": ""})
    (template_event,) = source.fetch_one(
        "select event_id from events where state_key is null and stream_ordering > 0 limit 1"
    )
    first, second = source.reserve(), source.reserve()
    bound = source.reserve()
    source.write(template_event, bound)
    source.store()
    provisional_check = {ExpectNoProvisionalBound.expectation_type}

    measurement = measure_events(lake)
    assert (measurement.bound, measurement.faults) == ((bound, "provisional", None), set())
    assert measurement.warnings == provisional_check

    # ep3 commits its row. Synapse stores the position later.
    source.run("update events set instance_name = 'ep3' where event_id = %s", [source.write(template_event, first)])
    measurement = measure_events(lake)
    assert measurement.bound == (None, "missing_learned_writer", "provisional")
    assert measurement.position["missing_writers"] == ["ep3"]
    assert measurement.faults == {("late", first, (PROVISIONAL_FLAG,))}
    assert dict(measurement.position["provisional_gaps"]) == {"late": 1}
    assert measurement.position["faults"] == [f"provisional late {first} in events (ep3)"]
    assert measurement.warnings == provisional_check

    # The configuration lacks ep3, which continues to write.
    source.run("insert into stream_positions values ('events', 'ep3', %s)", [first])
    without_ep3 = {"lakehouse_stream_writers": f"{WRITERS} events:persister1,persister2"}
    lake.settings = lake.settings.model_copy(update=without_ep3)
    measurement = measure_events(lake)
    assert measurement.bound == (bound, "provisional", "provisional")
    assert measurement.position["unknown_writers"] == ["ep3"]
    assert measurement.warnings == provisional_check | {ExpectConfiguredWriters.expectation_type}

    # The configuration names ep3. The bound is ahead of its position.
    with_ep3 = {"lakehouse_stream_writers": f"{WRITERS} events:persister1,persister2,ep3"}
    lake.settings = lake.settings.model_copy(update=with_ep3)
    measurement = measure_events(lake)
    assert (measurement.bound, measurement.faults) == ((bound, "provisional", "provisional"), set())
    assert measurement.position["linear_minimum"] == first

    source.run("update events set instance_name = 'ep3' where event_id = %s", [source.write(template_event, second)])
    source.run("update stream_positions set stream_id = %s where instance_name = 'ep3'", [second])
    measurement = measure_events(lake)
    assert measurement.bound == (bound, "configured", "provisional"), (
        "every ID from ep3's position to the bound has a row"
    )
    assert measurement.faults == {("late", second, (PROVISIONAL_FLAG,))}
