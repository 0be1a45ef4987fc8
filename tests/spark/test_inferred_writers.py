"""Writers without configuration are inferred from stored positions and rows."""

from collections.abc import Callable

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.streams.pipeline import measure
from tests.support.incremental_lake import advancing

TABLES = ("account_data", "room_account_data", "room_tags_revisions", "stream_positions")


def test_rows_without_a_writer_make_no_writer_missing(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synapse never names the writer of account data, which is a worker here."""
    full = catalogue.load_catalogue()
    few = full.model_copy(update={"tables": tuple(map(full.table, TABLES)), "streams": (full.stream("account_data"),)})
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: few)
    with advancing(new_lake(synapse_dsn=source_copy, synapse_config=None)) as lake:
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
    """As for old messages to devices, from Synapse versions without writer names."""
    with advancing(new_lake(synapse_dsn=source_copy, synapse_config=None)) as lake:
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
