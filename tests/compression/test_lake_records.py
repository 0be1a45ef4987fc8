"""A manual ``lakehouse compress`` records each finished room in the lake, if there is one."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner, Result

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.compression.compress import INTERRUPTED
from synapse_lakehouse.compressor import record_outcome
from synapse_lakehouse.compressor.compress_room import compress_room as compress_room
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_RUNS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.local.services import run_embedded_server
from tests.conftest import environment, use_settings
from tests.support.state_database import all_states

JSON = ("--format", "json")
BEST = ("--strategy", "best")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def rooms(sample_dsn: str) -> list[str]:
    """Return the three rooms of the sample with the most groups to rewrite."""
    result = CliRunner().invoke(app, ["compress", "plan", *BEST, *JSON], env={"SYNAPSE_DSN": sample_dsn})
    planned_rows = sorted(json.loads(result.stdout), key=lambda row: -row["groups_to_rewrite"])[:3]
    assert all(row["groups_to_rewrite"] and row["rows_after"] < row["rows_before"] for row in planned_rows)
    return [row["room_id"] for row in planned_rows]


@pytest.fixture
def apply(rooms: list[str]) -> list[str]:
    """Return arguments that compress these rooms in this order."""
    return ["apply", *BEST, *(argument for room in rooms for argument in ("--room", room)), "--yes", *JSON]


@pytest.fixture
def lake_settings(new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of an empty lake, which this process uses."""
    lake_settings = new_lake(synapse_dsn=source_copy, synapse_write_dsn=source_copy)
    use_settings(lake_settings, monkeypatch)
    return lake_settings


def compress(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compress", *arguments])


def history(*arguments: str) -> list[Row]:
    result = compress("history", *arguments, *JSON)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def call_between_rooms(monkeypatch: pytest.MonkeyPatch, *functions: Callable[[], object]) -> None:
    """Call the functions before the second room, before the third room, and so on."""
    calls = iter((lambda: None, *functions))

    def step(*arguments: Any) -> Any:
        next(calls, lambda: None)()
        return compress_room(*arguments)

    monkeypatch.setattr(record_outcome, "compress_room", step)


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("lake_settings")
def test_the_history_has_manual_compressions(apply: list[str], rooms: list[str]) -> None:
    assert "no compressions" in compress("history").stderr
    apply_result = compress(*apply)
    assert (apply_result.exit_code, apply_result.stderr) == (0, "")
    printed_rows = {row["room_id"]: row for row in json.loads(apply_result.stdout)}
    assert list(printed_rows) == rooms
    rows = history()
    assert [row["room_id"] for row in rows] == rooms, "rows are in the order of compression"
    for row in rows:
        assert row["outcome"] == "compressed"
        assert row["strategy"] == "best"
        for name in ("rows_before", "rows_after", "groups_rewritten", "longest_chain", "disk_bytes_after"):
            assert row[name] == printed_rows[row["room_id"]][name]
        assert row["rows_freed"] > 0
    (run,) = {row["run_id"] for row in rows}
    assert run.startswith("compress apply 20")

    room = rooms[0]
    assert compress("apply", *BEST, "--room", room, "--yes").exit_code == 0
    room_history = history("--room", room)
    assert [row["groups_rewritten"] > 0 for row in room_history] == [True, False]
    assert room_history[0]["run_id"] == run != room_history[1]["run_id"]
    assert f"{room_history[0]['rows_freed']:,} rows and about" in compress("history", "--room", room).stdout


@pytest.mark.usefixtures("lake_settings")
def test_restored_rows_are_subtracted_from_the_freed_ones(apply: list[str], rooms: list[str]) -> None:
    applied_rows = {row["room_id"]: row for row in json.loads(compress(*apply).stdout)}
    files = [row["undo"] for row in applied_rows.values()]
    assert compress("undo", *files).exit_code == 0
    assert len(history()) == len(rooms), "a dry run records nothing"
    undo_result = compress("undo", *files, "--yes")
    assert (undo_result.exit_code, undo_result.stderr) == (0, "")
    rows = history()[len(rooms) :]
    assert {row["room_id"] for row in rows} == set(rooms)
    for row in rows:
        before = applied_rows[row["room_id"]]
        assert row["outcome"] == "undone"
        assert (row["rows_before"], row["rows_after"]) == (before["rows_after"], before["rows_before"])
        assert (row["groups_rewritten"], row["error"]) == (before["groups_rewritten"], None)
        assert (row["chain_before"], row["chain_after"]) == (before["chain_after"], before["chain_before"])
        assert row["run_id"].startswith("compress undo 20")
    assert "\n0 rows and about 0.0 MB" in compress("history").stdout


def test_without_a_lake_a_note_is_printed(
    apply: list[str], source_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv("SYNAPSE_WRITE_DSN", source_copy)
    apply_result = compress(*apply)
    assert apply_result.exit_code == 0
    files = [row["undo"] for row in json.loads(apply_result.stdout)]
    assert len(files) == 3
    assert apply_result.stderr.startswith("The outcomes were not recorded")
    assert f"{tmp_path}" in apply_result.stderr
    assert apply_result.stderr.count("\n") == 1
    assert not (tmp_path / "postgres").exists()
    assert not (tmp_path / "warehouse").exists()
    undo_result = compress("undo", *files, "--yes")
    assert undo_result.exit_code == 0
    assert undo_result.stderr.startswith("The outcomes were not recorded")


def test_a_stopped_embedded_lake_is_started(
    apply: list[str], rooms: list[str], source_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv("SYNAPSE_WRITE_DSN", source_copy)
    with run_embedded_server(Settings(_env_file=None)):
        pass
    apply_result = compress(*apply)
    assert (apply_result.exit_code, apply_result.stderr) == (0, "")
    assert [row["room_id"] for row in history()] == rooms


@pytest.mark.usefixtures("lake_settings")
def test_a_stopped_run_records_finished_rooms(apply: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    call_between_rooms(monkeypatch, stop)
    stop_result = compress(*apply)
    assert stop_result.exit_code == INTERRUPTED
    (printed_row,) = json.loads(stop_result.stdout)
    result, stopped_row = history()
    assert (result["room_id"], result["outcome"]) == (printed_row["room_id"], "compressed")
    assert (stopped_row["outcome"], stopped_row["rows_before"]) == ("stopped", None)
    assert stopped_row["error"]


@pytest.mark.usefixtures("lake_settings")
def test_a_stop_while_a_room_is_recorded_loses_nothing(apply: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    append = store.append_audit_rows

    def append_after_stop(*arguments: Any) -> None:
        monkeypatch.setattr(store, "append_audit_rows", append)
        stop()

    monkeypatch.setattr(store, "append_audit_rows", append_after_stop)
    assert compress(*apply).exit_code == INTERRUPTED
    assert [row["outcome"] for row in history()] == ["compressed"]


def test_a_killed_run_has_recorded_finished_rooms(
    lake_settings: Settings, apply: list[str], rooms: list[str], source_copy: str
) -> None:
    with closing(open_catalog(lake_settings)) as catalog, psycopg.connect(source_copy) as locking_session:
        tables.ensure_audit_tables(catalog)
        # These locks prevent the second room.
        locking_session.execute("select from state_groups where room_id = %s for update", [rooms[1]])
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.compression", "compress", *apply], cwd=PROJECT_FOLDER,
            env=environment(lake_settings),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        while not read_outcomes(catalog):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        process.kill()
        assert process.communicate()[0] == "begins\n", "the process printed more before it was killed"
    assert [(row["room_id"], row["outcome"]) for row in history()] == [(rooms[0], "compressed")]


def read_outcomes(catalog: Catalog) -> list[Row]:
    return catalog.load_table(COMPRESSION_RUNS_TABLE).scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def outage(server: EmbeddedServer, lake_settings: Settings) -> Iterator[Callable[[bool], None]]:
    """Yield a function that disables or enables the lake's catalog."""
    name = urlsplit(str(lake_settings.lakehouse_catalog_uri)).path.strip("/")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:

        def set_outage(is_out: bool) -> None:
            connection.execute(f"alter database {name} allow_connections {not is_out}".encode())
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])

        yield set_outage
        set_outage(False)


def test_outcomes_are_recorded_once_the_lake_is_back(
    apply: list[str], outage: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    call_between_rooms(monkeypatch, lambda: outage(True), lambda: outage(False))
    apply_result = compress(*apply)
    assert apply_result.exit_code == 0, apply_result.stderr
    assert apply_result.stderr.count("The lake cannot record") == 1
    assert [row["room_id"] for row in history()] == [row["room_id"] for row in json.loads(apply_result.stdout)]


def test_an_unrecorded_outcome_is_reported_and_stays_applied(
    apply: list[str], outage: Callable[[bool], None], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_states(source_copy)
    call_between_rooms(monkeypatch, lambda: outage(True))
    apply_result = compress(*apply)
    assert apply_result.exit_code == 1
    first, *later_rows = json.loads(apply_result.stdout)
    assert all(row["groups_rewritten"] > 0 for row in later_rows)
    assert f"The outcome of {', '.join(row['room_id'] for row in later_rows)} is not recorded" in apply_result.stderr
    assert "not currently accepting connections" in apply_result.stderr
    assert all_states(source_copy) == before
    outage(False)
    assert [row["room_id"] for row in history()] == [first["room_id"]]

    # Other errors are still reported.
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", "postgresql://nobody@127.0.0.1:1/nothing")
    call_between_rooms(monkeypatch, stop)
    stop_result = compress(*apply)
    assert stop_result.exit_code == INTERRUPTED
    assert len(json.loads(stop_result.stdout)) == 1
    assert stop_result.stderr.startswith("The lake cannot record")
    assert "Error: The outcome of" in stop_result.stderr
    assert "Stopped." in stop_result.stderr.splitlines()[-1]


def test_concurrent_appends_lose_no_outcome(lake_settings: Settings, apply: list[str], rooms: list[str]) -> None:
    is_over = threading.Event()
    with closing(open_catalog(lake_settings)) as catalog:
        tables.ensure_audit_tables(catalog)

        def append() -> None:
            while not is_over.wait(0.05):
                store.append_audit_rows(
                    catalog, COMPRESSION_RUNS_TABLE, [{"run_id": "state_compression 1", "room_id": f"!{len(appended)}"}]
                )
                appended.append(None)

        appended: list[None] = []
        append_thread = threading.Thread(target=append)
        append_thread.start()
        try:
            apply_result = compress(*apply)
        finally:
            is_over.set()
            append_thread.join()
        assert apply_result.exit_code == 0, apply_result.stderr
        manual_rooms = [row["room_id"] for row in read_outcomes(catalog) if row["run_id"].startswith("compress apply")]
    assert sorted(manual_rooms) == sorted(rooms)
    assert len(appended) > 3
