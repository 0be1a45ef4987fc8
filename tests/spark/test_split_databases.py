"""With a separate state database, a run takes two PostgreSQL snapshots, and a new pair if groups are deleted."""

import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Database
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import split_by_database
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import lake_maker
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake
from tests.support.split_source import second_server, split_source

DECLARED = catalogue.load_catalogue()
GROUP = 9_000_001
NEW_EVENT = "insert into event_to_state_groups (event_id, state_group) values (%s, %s)"
NEW_GROUP = (
    "insert into state_groups (id, room_id, event_id) select %s, room_id, event_id from state_groups limit 1",
    "insert into state_groups_state select %s, room_id, type, state_key, event_id from state_groups_state limit 1",
)


class SplitLake(IncrementalLake):
    """Copies with the app of a daily run, or of the maintenance run, which also reconciles and compares indexes."""

    job = "snapshot_tables"
    last_run_id = ""

    def copy(self, app: SparkApp) -> None:
        tables.ensure_tables(app.catalog, DECLARED)
        runpy.run_path(str(PROJECT_FOLDER / "spark_apps" / f"{self.job}.py"))[self.job](app)
        self.last_run_id = app.run.run_id

    def audit(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of an audit table that the last run wrote."""
        return store.read_run_rows(self.app().catalog, name, self.last_run_id)


@pytest.fixture(scope="module")
def lake(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitLake]:
    folder = tmp_path_factory.mktemp("split")
    with (
        second_server(folder / "state") as state_server,
        split_source(server, state_server=state_server) as (main, state),
        lake_maker(server, settings, folder) as make,
        open_incremental_lake(make(synapse_dsn=main, synapse_state_dsn=state)) as incremental,
    ):
        yield SplitLake(incremental.settings)


def add_group(lake: IncrementalLake, group: int) -> None:
    """Store a state group, then an event with it, as Synapse does."""
    with psycopg.connect(str(lake.settings.synapse_state_dsn)) as state:
        for statement in NEW_GROUP:
            state.execute(statement, [group])
    with psycopg.connect(str(lake.settings.synapse_dsn)) as main:
        main.execute(NEW_EVENT, [f"$of_{group}", group])


def delete_group(lake: IncrementalLake, group: int) -> None:
    """Delete an event, then its state group, as a purge does."""
    with psycopg.connect(str(lake.settings.synapse_dsn)) as main:
        main.execute("delete from event_to_state_groups where state_group = %s", [group])
    lose_group(lake, group)


def lose_group(lake: IncrementalLake, group: int) -> None:
    """Delete a state group that an event needs."""
    with psycopg.connect(str(lake.settings.synapse_state_dsn)) as state:
        state.execute("delete from state_groups_state where state_group = %s", [group])
        state.execute("delete from state_groups where id = %s", [group])


def test_a_copy_and_increments(lake: SplitLake) -> None:
    lake.job = "reconcile_bronze"
    ledger = lake.advance()
    lake.job = "snapshot_tables"
    assert lake.compare_with_source() == {}
    state_tables = {table.name for table in DECLARED.of_database(Database.STATE).tables}
    clusters = {name: row["system_identifier"] for name, row in ledger.items()}
    (state,) = {clusters[name] for name in state_tables}
    (main,) = {cluster for name, cluster in clusters.items() if name not in state_tables}
    assert main != state
    (snapshot,) = lake.audit("audit.snapshots")
    assert (snapshot["system_identifier"], snapshot["state_snapshot"]["system_identifier"]) == (main, state)
    assert (snapshot["in_recovery"], snapshot["state_in_recovery"]) == (False, False)
    assert snapshot["taken_at"] < snapshot["state_snapshot"]["taken_at"]
    assert (snapshot["absent_objects"], snapshot["unknown_objects"], snapshot["drifted_tables"]) == ([], [], [])
    differing_rows = {row["table_name"]: row["differing"] for row in lake.audit("audit.reconciliation")}
    assert differing_rows == dict.fromkeys((table.name for table in DECLARED.copied_tables()), 0)
    assert {"state_groups", "events"} <= {row["table_name"] for row in lake.audit("audit.index_checks") if row["pass"]}

    add_group(lake, GROUP)
    ledger = lake.advance()
    changed_tables = {name for name, row in ledger.items() if row["extent"] == "changed"}
    assert changed_tables == {"event_to_state_groups", "state_groups", "state_groups_state"}
    assert {row["extent"] for name, row in ledger.items() if name not in changed_tables} == {"none"}
    assert lake.compare_with_source() == {}


@dataclass
class Snapshots:
    """Counts PostgreSQL snapshots. Calls the next function of ``before_state`` before each snapshot of state."""

    count: int = 0
    before_state: list[Callable[[], None]] = field(default_factory=list)

    def take(self, settings: Settings, declared: Catalogue) -> Iterator[Catalogue]:
        for part in split_by_database(settings, declared):
            self.count += 1
            if Database.STATE in part.databases and self.before_state:
                self.before_state.pop(0)()
            yield part


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> Snapshots:
    snapshots = Snapshots()
    monkeypatch.setattr("synapse_lakehouse.ingest.snapshot_session.split_by_database", snapshots.take)
    return snapshots


def test_a_deletion_between_snapshots_causes_a_new_pair(lake: SplitLake, snapshots: Snapshots) -> None:
    add_group(lake, GROUP + 1)
    add_group(lake, GROUP + 2)
    lake.advance()
    assert snapshots.count == 2
    snapshots.before_state = [partial(delete_group, lake, GROUP + 2)]
    lake.advance()
    assert snapshots.count == 6
    assert lake.compare_with_source() == {}

    lose_group(lake, GROUP + 1)
    lake.advance()
    assert snapshots.count == 8, "a lost group causes no new pair"
    assert lake.compare_with_source() == {}


def test_three_mismatched_pairs_are_not_published(lake: SplitLake, snapshots: Snapshots) -> None:
    groups = range(GROUP + 3, GROUP + 6)
    for group in groups:
        add_group(lake, group)
    lake.advance()
    snapshots.count = 0
    snapshots.before_state = [partial(delete_group, lake, group) for group in groups]
    with pytest.raises(SourceError, match=r"SYNAPSE_STATE_DSN.*Nothing was published"):
        lake.advance()
    assert snapshots.count == 6
    assert set(lake.compare_with_source()) == {"event_to_state_groups", "state_groups", "state_groups_state"}

    lake.advance()
    assert lake.compare_with_source() == {}


def test_a_drifted_table_of_state_is_left_out(lake: SplitLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.advance()
    change = "alter table state_group_edges alter column prev_state_group type {}"
    with psycopg.connect(str(lake.settings.synapse_state_dsn), autocommit=True) as state:
        state.execute(change.format("numeric").encode())
        add_group(lake, GROUP + 6)
        with pytest.raises(SourceError, match=r"state_group_edges\.prev_state_group"):
            lake.advance()
        with monkeypatch.context() as partial_copy:
            partial_settings = lake.settings.model_copy(update={"lakehouse_on_drift": "partial"})
            partial_copy.setattr(lake, "settings", partial_settings)
            ledger = lake.advance()
        state.execute(change.format("bigint").encode())
    assert "state_group_edges" not in ledger
    assert {ledger[name]["extent"] for name in ("event_to_state_groups", "state_groups")} == {"changed"}
    lake.advance()
    assert lake.compare_with_source() == {}


@pytest.mark.parametrize("job", ["snapshot_tables", "reconcile_bronze"])
def test_state_of_another_homeserver_is_not_copied(lake: SplitLake, server: EmbeddedServer, job: str) -> None:
    lake.advance()
    with split_source(server) as (_, other_state_dsn):
        with psycopg.connect(other_state_dsn) as owner:
            owner.execute("update state_groups set room_id = '!of_another_homeserver' || id")
        foreign_lake = SplitLake(lake.settings.model_copy(update={"synapse_state_dsn": other_state_dsn}))
        foreign_lake.job = job
        with pytest.raises(SourceError, match="SYNAPSE_STATE_DSN"):
            foreign_lake.advance()
    assert lake.compare_with_source() == {}
