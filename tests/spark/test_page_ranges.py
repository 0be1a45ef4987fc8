"""A large table is read in page ranges; finished ranges of an interrupted copy are not read again."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest import table_copy
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.table_copy import TableCopy
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.spark_app import SparkApp
from tests.support.incremental_lake import IncrementalLake, Source, open_lake_of_tables


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, source_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    names = ("events", "event_json", "event_edges")
    with open_lake_of_tables(names, server, settings, source_dsn, tmp_path_factory.mktemp("page_ranges")) as lake:
        yield lake


def test_a_full_copy_has_few_commits(lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_ranges, "PAGES_PER_CHUNK", 5)
    monkeypatch.setattr(table_copy, "MAX_COMMITS", 4)
    source.execute("update event_json set format_version = format_version")
    source.execute("vacuum (full) event_json")
    snapshots_before = len(lake.app().catalog.load_table("bronze.event_json").snapshots())
    row = lake.advance()["event_json"]
    assert row["extent"] == "full"
    assert len(row["ranges"]) > 20
    assert len(lake.app().catalog.load_table("bronze.event_json").snapshots()) - snapshots_before in (4, 5)
    assert lake.compare_with_source() == {}


def test_an_interrupted_copy_is_resumed(lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished page ranges are not read again; only rows that changed since are read."""
    app = _interrupt_copy(lake, source, monkeypatch)
    source.execute("update event_json set json = '{}' where ctid < '(30,0)' and random() < 0.1")
    source.execute("delete from event_json where random() < 0.05")
    lake.copy(app)
    lake.publish(app)
    assert lake.compare_with_source() == {}
    (row,) = [row for row in lake.ledger(app) if row["table_name"] == "event_json"]
    assert row["extent"] == "resumed"
    assert row["rows_read"] < 0.8 * row["rows_source"]
    # The ledger has an entry for each range.
    ranges = row["ranges"]
    assert len(ranges) > 3
    assert sum(part["rows"] for part in ranges) == row["rows_read"]
    assert all(part["hash_read"] == part["hash_written"] for part in ranges)
    assert f"{combine_hashes(int(part['hash_read'], 16) for part in ranges):016x}" == row["hash_read"]


def test_a_copy_is_not_resumed_if_the_source_went_back(
    lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = _interrupt_copy(lake, source, monkeypatch)
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", app.run.run_id)
    restored_row = {"run_id": "another", "wal_lsn": "0/1", "taken_at": last["taken_at"] + timedelta(milliseconds=1)}
    store.append_audit_rows(app.catalog, "audit.snapshots", [last | restored_row])
    lake.copy(app)
    lake.publish(app)
    assert {row["extent"] for row in lake.ledger(app)} == {"full"}
    assert lake.compare_with_source() == {}


def _interrupt_copy(lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch) -> SparkApp:
    """Change event_json, and interrupt a run after some parts of the table. Return the run's app."""
    monkeypatch.setattr(page_ranges, "PAGES_PER_CHUNK", 20)
    source.execute("update event_json set format_version = format_version")
    source.execute("vacuum (full) event_json")
    app, accept_part, parts = lake.app(), TableCopy.accept_part, iter(range(15))

    def fail(copy: TableCopy, *part: Any) -> CopyProgress:
        if copy.target.table.name == "event_json" and next(parts, None) is None:
            raise ConnectionError("the machine went down")
        return accept_part(copy, *part)

    with monkeypatch.context() as patch:
        patch.setattr(TableCopy, "accept_part", fail)
        with pytest.raises(ConnectionError):
            lake.copy(app)
    return app
