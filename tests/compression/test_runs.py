"""A plan from the lake is applied to a Synapse database and recorded room by room."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.compressor import apply, record_outcome, undo_file
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.errors import NotApprovedError, VerificationError
from synapse_lakehouse.compressor.plan import find_rooms_without_savings
from synapse_lakehouse.compressor.postgres.session_settings import WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.snapshot_connections import connect_readers
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE, COMPRESSION_RUNS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.postgres.errors import ReadError
from tests.conftest import PublishedLake, lakehouse
from tests.support.state_database import all_states, read_state

RUN = Run("state_compression 1", datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
PLAN_SETTINGS = CompressorSettings(strategy=Strategy.BEST, number_of_rooms=4)


@pytest.fixture
def lake_settings(new_lake: Callable[..., Settings], source_copy: str) -> Settings:
    return new_lake(synapse_dsn=source_copy, synapse_write_dsn=source_copy)


@pytest.fixture
def lake(lake_settings: Settings, source_copy: str) -> Iterator[Catalog]:
    """Yield a lake in which a run planned rooms: three have groups to rewrite, and one no longer exists.

    The run had planned another room before.
    """
    with closing(open_catalog(lake_settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        with connect_readers(source_copy, lake_settings, WRITE_DSN_SETTING) as open_reader, open_reader() as reader:
            rows: list[dict[str, Any]] = [
                asdict(plan_room(reader.read_room(room), PLAN_SETTINGS)[1])
                for room in reader.select_rooms(PLAN_SETTINGS)
            ]
        rows.append(rows[0] | {"room_id": "!gone:x", "groups_to_rewrite": 1, "rows_after": 1_000_000})
        rows.append({"room_id": "!broken:x", "skipped": "its groups are a circle"})
        append_plan(catalog, [{"room_id": "!other:x", "groups_to_rewrite": 1, "rows_before": 9, "rows_after": 1}])
        append_plan(catalog, rows)
        yield catalog


def append_plan(catalog: Catalog, rows: list[dict[str, Any]]) -> None:
    now = {"release": 1, "planned_at": datetime.now(UTC)}
    store.append_audit_rows(
        catalog, COMPRESSION_PLAN_TABLE, [{**row, **now, **PLAN_SETTINGS.layout_settings()} for row in rows], RUN
    )


def read_outcomes(catalog: Catalog) -> dict[str, dict[str, Any]]:
    return {row["room_id"]: row for row in store.read_run_rows(catalog, COMPRESSION_RUNS_TABLE, RUN.run_id)}


def test_each_room_is_compressed_as_planned_and_recorded(
    lake_settings: Settings, lake: Catalog, source_copy: str
) -> None:
    before = all_states(source_copy)
    planned_rooms = [row for row in apply.read_plan(lake, RUN) if row["groups_to_rewrite"]]
    # The run uses the strategy of the plan, not the current setting.
    assert lake_settings.lakehouse_compressor_strategy is None

    apply.apply_plan(lake_settings, lake, RUN, print)

    assert all_states(source_copy) == before
    rows = read_outcomes(lake)
    assert {room: row["outcome"] for room, row in rows.items()} == {
        row["room_id"]: "skipped" if row["room_id"] == "!gone:x" else "compressed" for row in planned_rooms
    }
    assert rows["!gone:x"]["outcome"] == "skipped"
    for plan in planned_rooms[:3]:
        row = rows[plan["room_id"]]
        assert (row["rows_before"], row["rows_after"]) == (plan["rows_before"], plan["rows_after"])
        assert row["groups_rewritten"] == plan["groups_to_rewrite"]
        assert row["strategy"] == "best"
        assert row["error"] is None
    assert [verification.faults for verification in apply.verify_run(lake_settings, lake, RUN)] == [(), (), ()]

    history = json.loads(lakehouse(lake_settings, "compress", "history", "--format", "json").stdout)
    freed_rows = {row["room_id"]: row["rows_freed"] for row in history if row["outcome"] == "compressed"}
    assert freed_rows == {plan["room_id"]: plan["rows_before"] - plan["rows_after"] for plan in planned_rooms[:3]}
    assert all(row["chain_before"] and row["read_ms_after"] for row in history if row["outcome"] == "compressed")
    output = lakehouse(lake_settings, "compress", "history", COLUMNS="200").stdout
    assert f"{sum(freed_rows.values()):,} rows and about" in output
    assert all(room in output for room in freed_rows)
    room = min(freed_rows)
    assert (
        f"{freed_rows[room]:,} rows and about" in lakehouse(lake_settings, "compress", "history", "--room", room).stdout
    )

    after = read_state(source_copy)
    apply.apply_plan(lake_settings, lake, RUN, print)
    assert read_state(source_copy) == after
    rerun = read_outcomes(lake)
    assert all(rerun[row["room_id"]]["finished_at"] == rows[row["room_id"]]["finished_at"] for row in planned_rooms[:3])

    # The cleared run makes a new plan, so the former approval is no longer valid.
    approved_timestamp = apply.plan_timestamp(planned_rooms)
    append_plan(lake, [dict(planned_rooms[0])])
    with pytest.raises(NotApprovedError):
        apply.apply_plan(lake_settings, lake, RUN, print, approved_timestamp)
    apply.apply_plan(lake_settings, lake, RUN, print, apply.plan_timestamp(apply.read_plan(lake, RUN)))
    assert read_outcomes(lake)[planned_rooms[0]["room_id"]]["groups_rewritten"] == 0


def test_a_change_that_keeps_the_state_is_no_fault(lake_settings: Settings, lake: Catalog, source_copy: str) -> None:
    """Synapse may lengthen chains after the compression, and predecessors may be missing before it."""
    planned_rooms = [row["room_id"] for row in apply.read_plan(lake, RUN) if row["groups_to_rewrite"]]
    room = planned_rooms[0]
    with psycopg.connect(source_copy, autocommit=True) as connection:
        tip = connection.execute("select max(id) from state_groups where room_id = %s", [room]).fetchone()
        connection.execute("insert into state_groups values (90000002, %s, '$x')", [room])
        connection.execute("insert into state_group_edges values (90000002, 90000001)")
        connection.execute(
            "insert into state_groups_state values (90000002, %s, 'm.room.create', '', '$create')", [room]
        )
        before = all_states(source_copy)
        apply.apply_plan(lake_settings, lake, RUN, print)
        assert read_outcomes(lake)[room]["outcome"] == "compressed"
        assert all_states(source_copy) == before
        groups = [tip[0] if tip else 0, *range(91_000_000, 91_000_120)]
        for prev, group in pairwise(groups):
            connection.execute("insert into state_groups values (%s, %s, '$x')", [group, room])
            connection.execute("insert into state_group_edges values (%s, %s)", [group, prev])
    assert not any(verification.faults for verification in apply.verify_run(lake_settings, lake, RUN))
    append_plan(lake, [dict(apply.read_plan(lake, RUN)[0])])
    apply.apply_plan(lake_settings, lake, RUN, print)


def test_a_lost_undo_file_stops_no_other_verification(lake_settings: Settings, lake: Catalog, source_copy: str) -> None:
    apply.apply_plan(lake_settings, lake, RUN, print)
    rows = {room: row for room, row in read_outcomes(lake).items() if row["undo"]}
    undo_path = Path(rows[min(rows)]["undo"][0])
    undo_path.rename(undo_path.with_suffix(".elsewhere"))

    faults = {verification.room_id: verification.faults for verification in apply.verify_run(lake_settings, lake, RUN)}

    assert str(undo_path) in faults.pop(min(rows))[0]
    assert set(faults) == set(rows) - {min(rows)}
    assert set(faults.values()) == {()}
    assert {row["outcome"] for row in read_outcomes(lake).values() if row["undo"]} == {"compressed"}
    undo_path.with_suffix(".elsewhere").rename(undo_path)
    assert not any(verification.faults for verification in apply.verify_run(lake_settings, lake, RUN))


def test_a_wrong_room_is_reported_until_it_is_repaired(
    lake_settings: Settings, lake: Catalog, source_copy: str
) -> None:
    before = all_states(source_copy)
    apply.apply_plan(lake_settings, lake, RUN, print)
    faulty_room = apply.read_plan(lake, RUN)[0]["room_id"]
    group = undo_file.read(Path(read_outcomes(lake)[faulty_room]["undo"][0])).groups[0]
    with psycopg.connect(source_copy) as connection:
        connection.execute("update state_groups_state set event_id = '$other' where state_group = %s", [int(group)])

    faults = {verification.room_id: verification.faults for verification in apply.verify_run(lake_settings, lake, RUN)}

    assert "another state" in faults.pop(faulty_room)[0]
    assert set(faults.values()) == {()}
    row = read_outcomes(lake)[faulty_room]
    assert row["outcome"] == "faulty"
    assert "another state" in row["error"]
    assert row["undo"]

    # A second verification finds the same fault. Until its repair, no room is compressed, and a restore is refused.
    assert {
        verification.room_id for verification in apply.verify_run(lake_settings, lake, RUN) if verification.faults
    } == {faulty_room}
    append_plan(lake, [dict(apply.read_plan(lake, RUN)[0])])
    with pytest.raises(VerificationError, match="undo --repair --yes"):
        apply.apply_plan(lake_settings, lake, RUN, print)
    refused_undo = lakehouse(lake_settings, "compress", "undo", *row["undo"], "--yes")
    assert refused_undo.returncode == 1
    assert "--repair" in refused_undo.stderr
    assert all_states(source_copy) != before

    repair = lakehouse(lake_settings, "compress", "undo", *row["undo"], "--repair", "--yes")
    assert repair.returncode == 0, repair.stderr
    assert all_states(source_copy) == before
    assert not any(verification.faults for verification in apply.verify_run(lake_settings, lake, RUN))
    assert read_outcomes(lake)[faulty_room]["outcome"] == "compressed"
    assert "rows and about" in lakehouse(lake_settings, "compress", "history").stdout
    apply.apply_plan(lake_settings, lake, RUN, print)
    assert all_states(source_copy) == before


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (psycopg.errors.DiskFull("could not extend file"), "disk of the database is full"),
        (ReadError(psycopg.OperationalError("server closed the connection")), "server closed the connection"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_the_reason_of_a_stopped_run_is_recorded(
    lake_settings: Settings, lake: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(record_outcome, "compress_room", stop)
    with pytest.raises((CompressorError, type(error)), match=message):
        apply.apply_plan(lake_settings, lake, RUN, print)
    ((_, row),) = read_outcomes(lake).items()
    assert row["outcome"] == "stopped"
    assert message in row["error"]


def test_rooms_without_savings_make_way_for_other_rooms(lake: Catalog) -> None:
    assert find_rooms_without_savings(lake, PLAN_SETTINGS) == {}
    no_savings = {"groups_to_rewrite": 0, "rows_before": 9, "rows_after": 9}
    append_plan(lake, [{"room_id": "!calm:x", "newest_group": group, **no_savings} for group in (7, 9)])
    append_plan(lake, [{"room_id": "!broken:x", "newest_group": 4, "skipped": "its groups are a circle"}])
    append_plan(lake, [{"room_id": "!won:x", "newest_group": 5, "groups_to_rewrite": 3}])
    assert find_rooms_without_savings(lake, PLAN_SETTINGS) == {"!calm:x": 9, "!broken:x": 4}
    assert find_rooms_without_savings(lake, PLAN_SETTINGS.model_copy(update={"max_chain": 50})) == {}


@pytest.mark.heavy
def test_the_dag_applies_its_plan(published: PublishedLake, source_copy: str) -> None:
    options = {"enabled": "true", "apply": "true", "strategy": "best"}
    settings = published.settings.model_copy(
        update={"synapse_dsn": source_copy, "synapse_write_dsn": source_copy}
        | {f"lakehouse_compressor_{name}": value for name, value in options.items()}
    )
    before = all_states(source_copy)

    result = lakehouse(settings, "airflow", "dags", "test", "state_compression")

    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-5000:]
    assert all_states(source_copy) == before
    password = psycopg.conninfo.conninfo_to_dict(source_copy)["password"]
    assert str(password) not in output
    sql = (
        "select p.room_id, p.rows_after as planned, r.rows_after as stored, r.outcome"
        " from gold.compression_plan p join audit.compression_runs r using (run_id, room_id)"
        " where run_id like 'state_compression %'"
    )
    rows = json.loads(lakehouse(settings, "query", sql, "--format", "json").stdout)
    assert len(rows) >= 3
    assert all(row["planned"] == row["stored"] and row["outcome"] == "compressed" for row in rows)
