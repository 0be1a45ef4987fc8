"""New pages of a table are read on their own; finished page ranges of an interrupted copy are not read again."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.commits import PreparedCommit, prepare_row_change
from synapse_lakehouse.ingest import branch_table, table_copy
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.table_copy import TableCopy
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows
from synapse_lakehouse.spark_app import SparkApp
from tests.support.incremental_lake import AdvancingLake, Source, lake_of_tables


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, source_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdvancingLake]:
    names = ("events", "event_json", "event_edges")
    with lake_of_tables(names, server, settings, source_dsn, tmp_path_factory.mktemp("page_ranges")) as lake:
        yield lake


def test_new_pages_are_read_once_and_on_their_own(lake: AdvancingLake, source: Source) -> None:
    def grow(rows: int) -> None:
        source.execute(
            "insert into event_edges (event_id, prev_event_id, room_id, is_state)"
            " select '$grown:' || gen_random_uuid(), '$before', '!grown:it', false from generate_series(1, %s)",
            [rows],
        )

    def ranges() -> list[tuple[bool, bool, int]]:
        row = lake.advance()["event_edges"]
        assert lake.departures() == {}
        assert sum(part["rows"] for part in row["ranges"]) == row["rows_read"]
        return sorted((part["first_page"] > 0, part["last_page"] is None, part["rows"]) for part in row["ranges"])

    grow(20_000)
    assert lake.advance()["event_edges"]["heap_pages"] > 200
    grow(1_000)
    assert ranges() == [(True, True, 1_000)]

    # Changes of other pages, and deleted rows, some of them new.
    before = source.execute("update event_edges set is_state = true where ctid < '(9,0)'").rowcount
    grow(500)
    source.execute("update event_edges set is_state = true where ctid >= '(5,0)' and ctid < '(9,0)'")
    gone = source.execute("delete from event_edges where event_id like '$grown:%0'").rowcount
    source.execute("vacuum event_edges")
    room = source.execute("update event_edges set is_state = true where ctid >= '(20,0)' and ctid < '(60,0)'").rowcount
    grow(2_000)
    assert gone > 1_000
    parts = ranges()
    assert [part[:2] for part in parts] == [(False, False), (True, True)]
    assert min(rows for *_, rows in parts) > 0
    assert sum(rows for *_, rows in parts) > max(before, room)

    # A table of which more than half changed is read in full, once.
    grow(30_000)
    source.execute("delete from event_edges where room_id = '!grown:it' and ctid < '(200,0)'")
    assert ranges()[0][:2] == (False, True)
    source.execute("delete from event_edges where room_id = '!grown:it'")
    source.execute("vacuum event_edges")
    assert lake.advance()["event_edges"]["rows_read"] == 0
    assert lake.departures() == {}


class Preparations:
    """Counts prepared commits of ``bronze.event_edges``, and lets the source count only after one is prepared.

    ``meanwhile``: called once after the next commit is prepared.
    """

    NAME = "bronze.event_edges"

    def __init__(self) -> None:
        self.number = 0
        self.meanwhile: list[Callable[[], None]] = []
        self._is_prepared = threading.Event()

    def reset(self) -> None:
        self.number = 0
        self._is_prepared.clear()

    def prepare(self, spark: SparkSession, name: str, *arguments: Any) -> PreparedCommit:
        prepared = prepare_row_change(spark, name, *arguments)
        if name == self.NAME:
            self.number += 1
            while self.meanwhile:
                self.meanwhile.pop()()
            self._is_prepared.set()
        return prepared

    def count(self, connection: Connection, table: catalogue.Table, *arguments: Any) -> RowCounts:
        if f"bronze.{table.name}" == self.NAME:
            assert self._is_prepared.wait(60)
        return count_changed_rows(connection, table, *arguments)


def test_new_pages_are_prepared_while_the_source_counts(
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Preparations()

    def prepared_commits(*statements: str) -> int:
        """Number of commits that a run prepares after the statements."""
        for statement in statements:
            source.execute(statement.encode())
        commits.reset()
        app = lake.app()
        assert app.spark, "commits are prepared only once Spark has started"
        lake.copy(app)
        lake.publish(app)
        (row,) = [row for row in lake.ledger(app) if row["table_name"] == "event_edges"]
        assert row["extent"] == "changed"
        assert lake.departures() == {}
        return commits.number

    grow = (
        "insert into event_edges (event_id, prev_event_id, room_id, is_state)"
        " select '$prepared:' || gen_random_uuid(), '$before', '!prepared:it', false from generate_series(1, 20000)"
    )
    # Without free space in old pages, new rows are in new pages only.
    for statement in ("vacuum (full) event_edges", grow):
        source.execute(statement.encode())
    lake.advance()
    monkeypatch.setattr(branch_table, "prepare_row_change", commits.prepare)
    monkeypatch.setattr(table_copy, "count_changed_rows", commits.count)
    assert prepared_commits(grow) == 1
    assert prepared_commits(grow, "update event_edges set is_state = true where ctid < '(3,0)'") == 2
    assert prepared_commits(grow, "delete from event_edges where event_id like '$prepared:%0'") == 2

    # A concurrent change of the table's metadata does not make the run fail.
    def set_a_property() -> None:
        with lake.app().catalog.load_table(commits.NAME).transaction() as change:
            change.set_properties({"owner": "somebody"})

    commits.meanwhile.append(set_a_property)
    assert prepared_commits(grow) == 1

    # Files of unused commits are deleted.
    table = lake.app().catalog.load_table(commits.NAME)
    used = {snapshot.manifest_list for snapshot in table.snapshots()}
    used |= {manifest.manifest_path for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)}
    folder = Path(table.location().removeprefix("file:")) / "metadata"
    assert {path.name for path in folder.glob("*.avro")} == {Path(path).name for path in used}
    source.execute("delete from event_edges where room_id = '!prepared:it'")
    lake.advance()
    assert lake.departures() == {}


def test_an_interrupted_copy_is_resumed(lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished page ranges are not read again; only rows that changed since are read."""
    app = _interrupt_copy(lake, source, monkeypatch)
    source.execute("update event_json set json = '{}' where ctid < '(30,0)' and random() < 0.1")
    source.execute("delete from event_json where random() < 0.05")
    lake.copy(app)
    lake.publish(app)
    assert lake.departures() == {}
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
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = _interrupt_copy(lake, source, monkeypatch)
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", app.run.run_id)
    behind = {"run_id": "another", "wal_lsn": "0/1", "taken_at": last["taken_at"] + timedelta(milliseconds=1)}
    store.append_audit_rows(app.catalog, "audit.snapshots", [last | behind])
    lake.copy(app)
    lake.publish(app)
    assert {row["extent"] for row in lake.ledger(app)} == {"full"}
    assert lake.departures() == {}


def _interrupt_copy(lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch) -> SparkApp:
    """Change event_json, and stop a run after some of its parts; return the run's app."""
    monkeypatch.setattr(page_ranges, "PAGES_PER_CHUNK", 20)
    source.execute("update event_json set format_version = format_version")
    source.execute("vacuum (full) event_json")
    app, accept_part, parts = lake.app(), TableCopy.accept_part, iter(range(15))

    def fail(copy: TableCopy, *part: Any) -> CopyProgress:
        if copy.target.table.name == "event_json" and next(parts, None) is None:
            raise ConnectionError("the machine went down")
        return accept_part(copy, *part)

    with monkeypatch.context() as patched:
        patched.setattr(TableCopy, "accept_part", fail)
        with pytest.raises(ConnectionError):
            lake.copy(app)
    return app
