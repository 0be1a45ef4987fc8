"""The coverage compares received commands with stored rows in real Iceberg tables."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import NoSuchTableError

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.replication.coverage.measure_coverage import TABLE, prepare_comparison, summarize
from synapse_lakehouse.replication.coverage.token_windows import (
    Key,
    TapPositions,
    Window,
    compute_read_start_times,
    compute_windows,
)
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.rdata_subject import read_subject
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Update
from synapse_lakehouse.replication.tap.follower import Item
from synapse_lakehouse.replication.tap.iceberg_sink import Batch, IcebergSink
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import lake_maker
from tests.replication.database import CATALOGUE
from tests.support.incremental_lake import open_incremental_lake

STREAMS = ("events", "backfill", "receipts", "to_device", "device_lists")
TABLES = (
    "events", "current_state_delta_stream", "ex_outlier_stream", "receipts_linearized", "device_inbox",
    "device_lists_stream", "device_lists_changes_in_room",
)  # fmt: skip
SUBSET = CATALOGUE.model_copy(
    update={"tables": tuple(map(CATALOGUE.table, TABLES)), "streams": tuple(map(CATALOGUE.stream, STREAMS))}
)
AUDIT_TABLES = (TABLE, "audit.snapshots", "audit.releases", "audit.stream_gaps")
P1, P2, BACKFILL = ("events", "p1"), ("events", "p2"), ("backfill", "p2")
RECEIPTS, TO_DEVICE, TOKENS = ("receipts", "w"), ("to_device", "w"), ("events", None)
DAY = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Lake:
    """Bronze tables, a tap that writes given items, and runs that compare both."""

    app: SparkApp
    runs: int = 0

    def add_rows(self, table: str, column: str, ids: Mapping[int, str | None]) -> None:
        """Append rows to bronze, given as writers by ID."""
        rows = [{column: id_, "instance_name": writer} for id_, writer in ids.items()]
        schema = tables.get_arrow_schema(SUBSET.table(table))
        self.app.catalog.load_table(f"bronze.{table}").append(pa.Table.from_pylist(rows, schema=schema))

    def receive(self, positions: Mapping[Any, int], *items: Item, dialect: Dialect = Dialect.REDIS) -> None:
        """Commit the items as a tap that ends at ``positions``."""
        batch = Batch(RowRedactor(CATALOGUE), "redis", dialect)
        for item in items:
            batch.add(item)
        batch.add_positions(positions)
        sink = IcebergSink(self.app.catalog, "redis", dialect)
        sink.read_positions()
        sink.append(batch)

    def compare(self, *, publish: bool = True, **bounds: int) -> tuple[dict[Any, dict[str, Any]], list[dict[str, Any]]]:
        """Return a run's coverage rows by source (of one dialect), and the announced rows that are not stored."""
        self.runs += 1
        for name in (*AUDIT_TABLES, COMMANDS_TABLE, *(f"bronze.{table.name}" for table in SUBSET.copied_tables())):
            if self.app.catalog.table_exists(name):
                # Spark may still cache a table that an earlier test dropped.
                self.app.spark.catalog.refreshTable(name)
        run = Run(f"run_{self.runs}", DAY, DAY + timedelta(days=1))
        comparison = prepare_comparison(self.app.spark, self.app.catalog, run, SUBSET, bounds)
        announced, rows = (comparison.announced().toArrow().to_pylist(), comparison.rows()) if comparison else ([], [])
        if rows:
            store.append_audit_rows(self.app.catalog, TABLE, rows, run)
        if publish:
            now = datetime.now(UTC)
            release = {"release": self.runs, "published_at": now, "accepted_at": now}
            empty: dict[str, list[object]] = {"tables": [], "positions": [], "views": []}
            store.append_audit_rows(self.app.catalog, "audit.releases", [release | empty], run)
        return {(row["stream"], row["instance"]): row for row in rows}, announced


@pytest.fixture(scope="module")
def app(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkApp]:
    with (
        lake_maker(server, settings, tmp_path_factory.mktemp("lake")) as make_lake,
        open_incremental_lake(make_lake()) as lake,
    ):
        app = lake.app()
        for schema in ("audit", "bronze"):
            app.catalog.create_namespace(schema)
        yield app


@pytest.fixture
def lake(app: SparkApp) -> Lake:
    """Return a lake without rows, runs and commands of a tap."""
    schemas = {name: store.AUDIT_SCHEMAS[name] for name in AUDIT_TABLES}
    schemas |= {f"bronze.{table.name}": tables.get_arrow_schema(table) for table in SUBSET.copied_tables()}
    for name in (*schemas, COMMANDS_TABLE):
        with suppress(NoSuchTableError):
            app.catalog.drop_table(name)
    for name, schema in schemas.items():
        app.catalog.create_table(name, schema=schema)
    tables.ensure_commands_table(app.catalog)
    return Lake(app)


def ev(source: tuple[str, str | None], token: int, event_id: str = "$e", key: str | None = None, **more: Any) -> Update:
    return Update(*source, token, (["ev", [event_id, "!r", "m.x", key, None, None, None, False, False]],), **more)


def missing(row: dict[str, Any]) -> set[tuple[str, str, int, int]]:
    return {(range_["side"], range_["reason"], range_["first_id"], range_["last_id"]) for range_ in row["missing"]}


def counts(row: dict[str, Any], *names: str) -> dict[str, int]:
    return {name: row[name] for name in names}


def test_without_a_tap_nothing_is_compared(lake: Lake) -> None:
    lake.add_rows("events", "stream_ordering", {2: "p1"})
    assert lake.compare(events=2) == ({}, [])
    lake.app.catalog.drop_table(COMMANDS_TABLE)
    assert lake.compare(events=2) == ({}, [])


def test_missing_rows_are_found_on_both_sides(lake: Lake) -> None:
    lake.add_rows("events", "stream_ordering", {9: "p2", 11: "p2", 12: "p2", 13: "p2", 14: "p2", 15: "p1", 30: "p2"})
    lake.add_rows("current_state_delta_stream", "stream_id", {16: None, 17: "p2"})
    lake.add_rows("events", "stream_ordering", {-5: "p2", -7: "p2"})
    lake.add_rows("receipts_linearized", "stream_id", {6: None})
    lake.receive(
        {P1: 10, P2: 10, BACKFILL: 4, RECEIPTS: 4, TO_DEVICE: 4, ("caches", "p2"): 900}, c.Position(*P2, 10, 10)
    )
    lake.receive(
        {P1: 20, P2: 40, BACKFILL: 8, RECEIPTS: 6, TO_DEVICE: 5, ("master", "master"): 1},
        ev(P2, 11), ev(P2, 12, is_read=True), Gap(*P2, 11, 13, 1, "because"), ev(P1, 15), ev(P1, 16), ev(P2, 17),
        ev(P2, 18, "$gone"), ev(P2, 19, "$state", "key"), c.Position(*P2, 17, 19), c.Position(*P2, 10, 11),
        ev(P2, 30), ev(P2, 31), c.Position(*P1, 16, 20),
        Update(*BACKFILL, 5, (["$e", "!r", "m.x", None, None, None],)),
        Update(*RECEIPTS, 5, (["!r", "m.read", "@a", "$a", None, {}],)),
        Update(*RECEIPTS, 6, (["!r", "m.read", "@a", "$a", None, {}],)),
        Update(*TO_DEVICE, 5, ([None],)),
    )  # fmt: skip
    coverage, announced = lake.compare(events=25, backfill=8, receipts=6, to_device=6)
    assert set(coverage) == {P1, P2, BACKFILL, RECEIPTS, TO_DEVICE}
    assert missing(coverage[P2]) == {
        ("wire", "gap: because", 13, 13), ("wire", "never_announced", 14, 14), ("lake", "lost", 18, 19)
    }  # fmt: skip
    assert counts(coverage[P2], "after", "upto", "ids", "ahead", "rows", "tokens_received", "tokens_read", "gaps") == {
        "after": 10, "upto": 25, "ids": 5, "ahead": 0, "rows": 5, "tokens_received": 4, "tokens_read": 1, "gaps": 1,
    }  # fmt: skip
    assert counts(coverage[P2], "missed", "unexplained", "rowless", "token_regressions") == {
        "missed": 2, "unexplained": 1, "rowless": 2, "token_regressions": 1,
    }  # fmt: skip
    assert (missing(coverage[P1]), coverage[P1]["ids"], coverage[P1]["upto"]) == (set(), 1, 20)
    assert missing(coverage[BACKFILL]) == {("wire", "never_announced", 7, 7)}
    assert (missing(coverage[RECEIPTS]), coverage[RECEIPTS]["ids"]) == ({("lake", "replaced", 5, 5)}, 1), (
        "the ID is of the only writer"
    )
    assert (missing(coverage[TO_DEVICE]), coverage[TO_DEVICE]["ids"]) == ({("lake", "not_copied", 5, 5)}, None)
    assert coverage[P2]["open_since"]
    names = ("stream", "table_name", "id", "event_id", "room_id", "state_key")
    assert {tuple(row[name] for name in names) for row in announced} == {
        ("events", "events", 18, "$gone", "!r", None), ("events", "events", 19, "$state", "!r", "key"),
    }  # fmt: skip
    assert "2 missing" in summarize(list(coverage.values()))


def test_two_changes_of_a_device_are_announced_once(lake: Lake) -> None:
    """Synapse retains the row of the last change, and a row of every change for each room."""
    devices = ("device_lists", "w")
    lake.add_rows("device_lists_changes_in_room", "stream_id", {5: "w", 6: "w"})
    lake.add_rows("device_lists_stream", "stream_id", {6: "w", 7: "w"})
    lake.receive({devices: 4}, c.Position(*devices, 4, 4))
    lake.receive({devices: 7}, Update(*devices, 6, (["@a", False, False],)))
    coverage, _ = lake.compare(device_lists=7)
    assert (missing(coverage[devices]), coverage[devices]["ids"]) == ({("wire", "never_announced", 7, 7)}, 2)


def test_a_run_continues_after_the_published_one(lake: Lake) -> None:
    lake.receive({P1: 10}, ev(P1, 10))
    lake.add_rows("events", "stream_ordering", dict.fromkeys((9, 10, 11, 12, 13), "p1"))
    assert counts(lake.compare(events=10)[0][P1], "listened_from", "after", "upto", "ids") == {
        "listened_from": 9, "after": 9, "upto": 10, "ids": 1,
    }  # fmt: skip
    assert lake.compare(events=13)[0] == {}, "no command was received since"
    lake.receive({P1: 13}, ev(P1, 12), ev(P1, 13), c.Position(*P1, 12, 12))
    for publish in (False, True):
        first = lake.compare(events=12, publish=publish)[0][P1]
        assert counts(first, "after", "upto", "tokens_received", "unexplained", "token_regressions") == {
            "after": 10, "upto": 12, "tokens_received": 1, "unexplained": 1, "token_regressions": 1,
        }  # fmt: skip
    lake.receive({P1: 13}, c.Position(*P1, 13, 13))
    last = lake.compare(events=13)[0][P1]
    assert counts(last, "after", "upto", "tokens_received", "unexplained", "token_regressions") == {
        "after": 12, "upto": 13, "tokens_received": 1, "unexplained": 0, "token_regressions": 0,
    }  # fmt: skip
    lake.app.catalog.drop_table(COMMANDS_TABLE)
    lake.receive({P1: 40}, ev(P1, 40))
    assert counts(lake.compare(events=40)[0][P1], "listened_from", "upto", "missed") == {
        "listened_from": 39, "upto": 40, "missed": 0,
    }  # fmt: skip


def test_earlier_rows_of_a_new_writer_are_missed(lake: Lake) -> None:
    lake.add_rows("events", "stream_ordering", {9: "p1", 11: "p1", 12: "p2", 13: "p2", 14: "p2"})
    lake.receive({P1: 10}, c.Position(*P1, 10, 10))
    lake.receive({P1: 11, P2: 14}, ev(P1, 11), ev(P2, 14))
    coverage, _ = lake.compare(events=14)
    assert missing(coverage[P2]) == {("wire", "never_announced", 12, 13)}
    assert counts(coverage[P2], "listened_from", "tokens_received") == {"listened_from": 10, "tokens_received": 1}


def test_taps_of_several_dialects_are_compared_separately(lake: Lake) -> None:
    lake.add_rows("events", "stream_ordering", {2: "p1", 3: "p2", 4: None})
    lake.receive({TOKENS: 1}, c.Position(*TOKENS, None, 1), dialect=Dialect.TOKENS)
    lake.receive({TOKENS: 4}, ev(TOKENS, 2), ev(TOKENS, 4), dialect=Dialect.TOKENS)
    lake.receive({P1: 1, P2: 1})
    lake.receive({P1: 2, P2: 3}, ev(P1, 2), ev(P2, 3))
    coverage, _ = lake.compare(events=4)
    assert missing(coverage[TOKENS]) == {("wire", "never_announced", 3, 3)}
    assert coverage[TOKENS]["ids"] == 3
    assert (missing(coverage[P1]), missing(coverage[P2]), coverage[P1]["ids"], coverage[P2]["ids"]) == (
        set(), set(), 1, 1,
    )  # fmt: skip
    assert counts(coverage[P1], "ahead") == {"ahead": 0}


@pytest.mark.parametrize(
    ("stream", "row", "expected"),
    [
        ("events", '["state",["!r","m.x","k","$e"]]', ("current_state_delta_stream", "$e", "!r", None, "k")),
        ("backfill", '["$e","!r","m.x",null,null,null]', ("events", "$e", "!r", None, None)),
        ("push_rules", '["@a"]', ("push_rules_stream", None, None, "@a", None)),
        ("un_partial_stated_room", '["!r"]', ("un_partial_stated_room_stream", None, "!r", None, None)),
        ("events", '["state-all",["!r"]]', None),
        ("events", "null", None),
        ("unheard_of", "[]", None),
    ],
)
def test_the_subject_of_a_row(stream: str, row: str, expected: tuple[Any, ...] | None) -> None:
    subject = read_subject(CATALOGUE, stream, row)
    assert (subject and tuple(subject.values())) == expected


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.booleans()), max_size=12),
    st.integers(1, 20),
)
def test_every_id_is_compared_once(steps: list[tuple[int, int, bool, bool]], start: int) -> None:
    """A window begins where the last published one ends. It ends at or below the bound and the tap's position."""
    position = bound = start
    now, previous, published_windows = DAY, dict[Key, dict[str, Any]](), list[Window]()
    for received, bound_step, has_bound, is_published in steps:
        position, bound, now = position + received, bound + bound_step, now + timedelta(minutes=1)
        read_from = min(compute_read_start_times(previous).values(), default=DAY)
        tap = TapPositions({P1: start}, {P1: position}, max(read_from, DAY), now)
        (window,) = compute_windows(previous, {"redis": tap}, {}, {"events": bound if has_bound else None})
        end = published_windows[-1].upto if published_windows else start
        if has_bound:
            assert window.after == end
            assert window.upto == max(end, min(bound, position))
        else:
            assert window.after == window.upto == max(end, position), "tokens without a bound are skipped"
        assert window.listened_from == start
        if is_published:
            published_windows.append(window)
            previous = {("redis", *P1): vars(window) | {"open_since": None}}


def test_a_new_tap_starts_a_new_window() -> None:
    previous: dict[Key, dict[str, Any]] = {
        ("redis", *P1): {"listened_from": 1, "upto": 5, "read_until": DAY, "open_since": None}
    }
    later = DAY + timedelta(days=9)
    (window,) = compute_windows(
        previous, {"redis": TapPositions({P1: 90}, {P1: 99}, later, later)}, {("redis", *P1): 80}, {"events": 95}
    )
    assert window == Window(0, "redis", *P1, 80, 80, 95, 95, None, later)
