"""A lake whose runs measure streams, and a Synapse database with active writers and planted faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store as audit_store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.replication.coverage.measure_coverage import prepare_comparison
from synapse_lakehouse.streams.pipeline import measure
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake

TABLES = (
    "events", "event_json", "event_edges", "event_backward_extremities", "current_state_delta_stream",
    "ex_outlier_stream", "room_memberships", "rooms", "room_depth", "receipts_linearized", "account_data",
    "room_account_data", "stream_positions", "scheduled_tasks", "un_partial_stated_event_stream",
    "un_partial_stated_room_stream",
)  # fmt: skip
STREAMS = ("events", "backfill", "receipts", "account_data", "un_partial_stated_event", "un_partial_stated_room")

WRITERS = "events:persister1,persister2 backfill:persister2 receipts:worker1 account_data:worker1"

Found = set[tuple[str, str | None, int, int, str, str | None, str | None]]


def id_ranges(ids: list[int]) -> set[tuple[int, int]]:
    """Return the first and the last ID of each range of consecutive IDs."""
    firsts = [id_ for id_ in ids if id_ - 1 not in ids]
    return {(first, next(last for last in range(first, max(ids) + 2) if last + 1 not in ids)) for first in firsts}


class MeasuredLake(IncrementalLake):
    """A lake that measures its streams in each run."""

    def examine(self, *, publish: bool = True) -> Found:
        """Copy, measure and publish; return the gaps of this run."""
        app = self.app()
        self.copy(app)
        compare = partial(prepare_comparison, app.spark, app.catalog, app.run, catalogue.load_catalogue())
        measure(app, compare).append(app.catalog, app.run)
        if publish:
            self.publish(app)
        rows = app.catalog.load_table("audit.stream_gaps").scan().to_arrow().to_pylist()
        names = ("stream", "table_name", "first_id", "last_id", "class", "evidence", "explanation")
        return {tuple(row[name] for name in names) for row in rows if row["run_id"] == app.run.run_id}

    def bound(self) -> int:
        """Return the safe bound of events in the latest release."""
        return audit_store.read_releases(self.app().catalog)[-1].positions["events"]


class Database:
    """Synapse's database, with the changes of stream writers and with faults."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.run = connection.execute
        self.columns = ", ".join(
            f'"{name}"'
            for (name,) in self.run(
                "select column_name from information_schema.columns where table_name = 'events'"
                " and column_name not in ('event_id', 'stream_ordering', 'instance_name')"
            ).fetchall()
        )

    def fetch_one(self, query: str, *values: object) -> tuple[Any, ...]:
        """Return the first row of a query."""
        row = self.run(query, values).fetchone()
        assert row
        return row

    def reserve(self, sequence: str = "events_stream_seq") -> int:
        """Return a new stream ID."""
        return int(self.fetch_one("select nextval(%s)", sequence)[0])

    def write(self, like: str, stream_ordering: int, event_id: str | None = None) -> str:
        """Insert a copy of the event ``like``; return its event ID."""
        event_id = event_id or f"$new{stream_ordering}"
        self.run(
            f"insert into events (event_id, stream_ordering, instance_name, {self.columns})"
            f" select %s, %s, 'persister2', {self.columns} from events where event_id = %s",
            [event_id, stream_ordering, like],
        )
        self.run("insert into event_json select %s, room_id, internal_metadata, json, format_version"
                 " from event_json where event_id = %s", [event_id, like])  # fmt: skip
        return event_id

    def store(self, stream: str = "events") -> int:
        """Set the stored position of all writers to the last ID; return it."""
        sequence = {"events": "events_stream_seq", "backfill": "events_backfill_stream_seq"}[stream]
        position: int = self.fetch_one(f"select last_value from {sequence}")[0] * (-1 if stream == "backfill" else 1)
        self.run("update stream_positions set stream_id = %s where stream_name = %s", [position, stream])
        return position

    def purge(self, room: str, depth: int, *, retained_senders: str = "") -> list[int]:
        """Purge a room's messages below a depth as Synapse does, and return their IDs.

        :param retained_senders: a LIKE pattern of senders. Their messages become outliers instead.
        """
        self.run(
            "create temp table to_purge as with below as ("
            " select event_id, outlier, state_key is null and sender not like %s as goes from events"
            " where room_id = %s and topological_ordering < %s"
            ") select event_id, goes from below where not outlier or goes",
            [retained_senders, room, depth],
        )
        self.run("delete from event_backward_extremities where room_id = %s", [room])
        self.run(
            "insert into event_backward_extremities (room_id, event_id)"
            " select distinct %s, prev_event_id from event_edges join to_purge on prev_event_id = to_purge.event_id"
            " where event_edges.event_id not in (select event_id from to_purge)",
            [room],
        )
        deleted = self.run(
            "delete from events where event_id in (select event_id from to_purge where goes) returning stream_ordering"
        ).fetchall()
        for table in ("event_json", "event_edges"):
            self.run(f"delete from {table} where event_id in (select event_id from to_purge where goes)")
        self.run("delete from event_to_state_groups where event_id in (select event_id from to_purge)")
        self.run("update events set outlier = true where event_id in (select event_id from to_purge where not goes)")
        self.run(
            "update room_depth set min_depth = (select coalesce(min(depth), 0) from event_backward_extremities ends"
            " join event_edges edges on prev_event_id = ends.event_id join events on events.event_id = edges.event_id"
            " where ends.room_id = room_depth.room_id) where room_id = %s",
            [room],
        )
        self.run("drop table to_purge")
        return sorted(id_ for (id_,) in deleted)

    def delete(self, room: str) -> list[int]:
        """Delete a room as Synapse does; return the IDs of its events."""
        deleted = self.run("delete from events where room_id = %s returning stream_ordering", [room]).fetchall()
        for table in ("event_json", "room_memberships", "room_depth", "rooms"):
            self.run(f"delete from {table} where room_id = %s", [room])
        return sorted(id_ for (id_,) in deleted)

    def join_again(self, room: str) -> None:
        """Delete a room without a scheduled task, and join it again: its state events get new IDs."""
        retained = {"rooms": "true", "room_depth": "true", "events": "state_key is not null"}
        for table, condition in retained.items():
            self.run(
                f"create temp table again_{table} as select * from {table} where room_id = %s and {condition}", [room]
            )
        self.delete(room)
        self.run("update again_events set stream_ordering = nextval('events_stream_seq')")
        for table in retained:
            self.run(f"insert into {table} select * from again_{table}")


@contextmanager
def open_measured_lake(
    lake: Settings, source: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MeasuredLake, Database]]:
    """Yield an empty lake of a few tables and streams, and its source, a copy of the sample."""
    full = catalogue.load_catalogue()
    few = {"tables": tuple(map(full.table, TABLES)), "streams": tuple(map(full.stream, STREAMS))}
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: full.model_copy(update=few))
    overrides = {"synapse_dsn": source, "synapse_config": None, "lakehouse_stream_writers": WRITERS}
    with (
        open_incremental_lake(lake.model_copy(update=overrides)) as started,
        psycopg.connect(source, autocommit=True) as connection,
    ):
        connection.execute("set session_replication_role = replica")
        yield MeasuredLake(started.settings), Database(connection)
