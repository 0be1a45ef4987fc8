"""Runs every few seconds equal the source, while two homeservers federate, purge rooms and erase users."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sample.settle import settle
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams.pipeline import measure
from tests.integration.federated_load import LOCAL, REMOTE, Load, federation
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake

pytestmark = pytest.mark.heavy

SECONDS = 180
SEED = int(os.environ.get("SOAK_SEED") or time.time())
LARGE = ("events", "event_json", "state_groups_state")


@dataclass
class MeasuredLake(IncrementalLake):
    """A lake that measures its streams before it publishes, and so compares each run with the accepted bounds.

    ``removed_events``: IDs of events that an earlier release contains, but the latest one does not.
    """

    events: set[str] = field(default_factory=set)
    removed_events: set[str] = field(default_factory=set)
    bounded_streams: set[str] = field(default_factory=set)

    def publish(self, app: SparkApp) -> None:
        """Publish; fail if an ID is late, a stream has a regressed bound or a fault, or a key repeats."""
        measure(app).append(app.catalog, app.run)
        facts = store.read_run_rows(app.catalog, "audit.stream_facts", app.run.run_id)
        assert {(row["stream"], row["table_name"], row["late_ids"]) for row in facts if row["late_ids"]} == set()
        tables = store.read_run_rows(app.catalog, "audit.table_facts", app.run.run_id)
        repeating = {table.name for table in catalogue.load_catalogue().copied_tables() if table.repeats_keys}
        unsound = {row["table_name"] for row in tables if row["null_keys"] or row["duplicate_keys"]}
        assert unsound <= repeating
        positions = store.read_run_rows(app.catalog, "audit.stream_positions", app.run.run_id)
        assert [row for row in positions if _has_regressed(row)] == []
        assert [f"{row['stream']}: {fault}" for row in positions for fault in row["faults"]] == []
        self.bounded_streams |= {row["stream"] for row in positions if row["previous_bound"] is not None}
        super().publish(app)
        published = self.published_events()
        self.removed_events = (self.removed_events | self.events - published) - published
        self.events = published

    def published_events(self) -> set[str]:
        """Return the event IDs of the latest release."""
        with duckdb_reader.open_duckdb(self.settings) as lake:
            release = duckdb_reader.get_release(lake, self.settings)
            duckdb_reader.create_views(lake, self.settings, release, ["bronze.events"])
            return {row[0] for row in lake.execute("select event_id from bronze.events").fetchall()}


def test_increments_under_federation_equal_the_source(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED}")
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        source = server.dsn("here")
        with federation(server, tmp_path) as (local, remote):
            source_settings = {"synapse_dsn": source, "synapse_server_name": LOCAL, "synapse_config": local.config_path}
            early_settings, soaked_settings = (new_lake(**source_settings) for _ in range(2))
            load = Load(local, remote, SEED)
            with load.running():
                with open_incremental_lake(early_settings) as first:
                    first.advance()
                with open_incremental_lake(soaked_settings) as started:
                    lake = MeasuredLake(started.settings)
                    deadline = time.monotonic() + SECONDS
                    while time.monotonic() < deadline:
                        extents = [row["extent"] for row in lake.advance().values()]
                        print(f"run {lake.runs}: {len(lake.events)} events, {extents.count('changed')} tables changed")
            print(f"done {load.done}, refused {load.refused}")
            assert load.broken == []
            assert load.done.keys() >= ACTS
            settle(source)

        with open_incremental_lake(soaked_settings):
            lake.advance()
            assert lake.compare_with_source() == {}
            assert {"events", "receipts", "backfill"} <= lake.bounded_streams
            deleted = {json.loads(key)["event_id"] for table, key in lake.deletions() if table == "events"}
            assert lake.removed_events, "nothing was purged"
            assert lake.removed_events <= deleted
            with psycopg.connect(source) as connection:
                for table, statement in REQUIRED_ACTIVITY.items():
                    assert connection.execute(statement.encode()).fetchone() != (0,), table
        with open_incremental_lake(early_settings):
            by_table = {name: row["extent"] for name, row in first.advance().items()}
            assert first.compare_with_source() == {}
            print({name: by_table[name] for name in LARGE})


REQUIRED_ACTIVITY = {
    "events by backfill": "select count(*) from events where stream_ordering < 0",
    "outliers": "select count(*) from events where outlier",
    "erased users": "select count(*) from erased_users",
    "redactions": "select count(*) from redactions",
    "events of the other homeserver": f"select count(*) from events where sender like '%:{REMOTE}'",
    "both event persisters": "select count(distinct instance_name) - 1 from events",
}


ACTS = {
    "talk", "change_state", "leave_and_rejoin", "redact", "update_account", "open_room", "join_remote_room",
    "talk_in_shared_room", "moderate", "upgrade", "interrupt_federation",
}  # fmt: skip


def _has_regressed(row: dict[str, Any]) -> bool:
    bound, previous_bound = row["safe_bound"], row["previous_bound"]
    if previous_bound is None:
        return False
    return bound is None or (
        bound > previous_bound
        if catalogue.load_catalogue().stream(row["stream"]).sign == "negative"
        else bound < previous_bound
    )
