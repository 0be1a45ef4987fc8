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
    """The three rooms of the sample with the most to rewrite."""
    result = CliRunner().invoke(app, ["compress", "plan", *BEST, *JSON], env={"SYNAPSE_DSN": sample_dsn})
    planned = sorted(json.loads(result.stdout), key=lambda row: -row["groups_to_rewrite"])[:3]
    assert all(row["groups_to_rewrite"] and row["rows_after"] < row["rows_before"] for row in planned)
    return [row["room_id"] for row in planned]


@pytest.fixture
def apply(rooms: list[str]) -> list[str]:
    """Arguments that compress these rooms, in this order."""
    return ["apply", *BEST, *(argument for room in rooms for argument in ("--room", room)), "--yes", *JSON]


@pytest.fixture
def own(new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An empty lake, and the settings of this process."""
    own = new_lake(synapse_dsn=source_copy, synapse_write_dsn=source_copy)
    use_settings(own, monkeypatch)
    return own


def compress(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compress", *arguments])


def history(*arguments: str) -> list[Row]:
    result = compress("history", *arguments, *JSON)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def after_rooms(monkeypatch: pytest.MonkeyPatch, *then: Callable[[], object]) -> None:
    """Do these things before the second room, the third, and so on."""
    waiting = iter((lambda: None, *then))

    def step(*arguments: Any) -> Any:
        next(waiting, lambda: None)()
        return compress_room(*arguments)

    monkeypatch.setattr(record_outcome, "compress_room", step)


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("own")
def test_the_history_has_manual_compressions(apply: list[str], rooms: list[str]) -> None:
    assert "no compressions" in compress("history").stderr
    applied = compress(*apply)
    assert (applied.exit_code, applied.stderr) == (0, "")
    printed = {row["room_id"]: row for row in json.loads(applied.stdout)}
    assert list(printed) == rooms
    recorded = history()
    assert [row["room_id"] for row in recorded] == rooms, "in the order in which they were done"
    for row in recorded:
        assert row["outcome"] == "compressed"
        assert row["strategy"] == "best"
        for name in ("rows_before", "rows_after", "groups_rewritten", "longest_chain", "disk_bytes_after"):
            assert row[name] == printed[row["room_id"]][name]
        assert row["rows_freed"] > 0
    (run,) = {row["run_id"] for row in recorded}
    assert run.startswith("compress apply 20")

    room = rooms[0]
    assert compress("apply", *BEST, "--room", room, "--yes").exit_code == 0
    again = history("--room", room)
    assert [row["groups_rewritten"] > 0 for row in again] == [True, False]
    assert again[0]["run_id"] == run != again[1]["run_id"]
    assert f"{again[0]['rows_freed']:,} rows and about" in compress("history", "--room", room).stdout


@pytest.mark.usefixtures("own")
def test_restored_rows_are_subtracted_from_the_freed_ones(apply: list[str], rooms: list[str]) -> None:
    applied = {row["room_id"]: row for row in json.loads(compress(*apply).stdout)}
    files = [row["undo"] for row in applied.values()]
    assert compress("undo", *files).exit_code == 0
    assert len(history()) == len(rooms), "a dry run is no run"
    undone = compress("undo", *files, "--yes")
    assert (undone.exit_code, undone.stderr) == (0, "")
    recorded = history()[len(rooms) :]
    assert {row["room_id"] for row in recorded} == set(rooms)
    for row in recorded:
        before = applied[row["room_id"]]
        assert row["outcome"] == "undone"
        assert (row["rows_before"], row["rows_after"]) == (before["rows_after"], before["rows_before"])
        assert (row["groups_rewritten"], row["error"]) == (before["groups_rewritten"], None)
        assert (row["chain_before"], row["chain_after"]) == (before["chain_after"], before["chain_before"])
        assert row["run_id"].startswith("compress undo 20")
    assert "\n0 rows and about 0.0 MB" in compress("history").stdout


def test_without_a_lake_it_works_with_a_note(
    apply: list[str], source_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv("SYNAPSE_WRITE_DSN", source_copy)
    applied = compress(*apply)
    assert applied.exit_code == 0
    files = [row["undo"] for row in json.loads(applied.stdout)]
    assert len(files) == 3
    assert applied.stderr.startswith("The outcomes were not recorded")
    assert f"{tmp_path}" in applied.stderr
    assert applied.stderr.count("\n") == 1
    assert not (tmp_path / "postgres").exists()
    assert not (tmp_path / "warehouse").exists()
    undone = compress("undo", *files, "--yes")
    assert undone.exit_code == 0
    assert undone.stderr.startswith("The outcomes were not recorded")


def test_the_embedded_lake_is_started_for_it(
    apply: list[str], rooms: list[str], source_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv("SYNAPSE_WRITE_DSN", source_copy)
    with run_embedded_server(Settings(_env_file=None)):
        pass
    applied = compress(*apply)
    assert (applied.exit_code, applied.stderr) == (0, "")
    assert [row["room_id"] for row in history()] == rooms


@pytest.mark.usefixtures("own")
def test_a_stopped_run_records_finished_rooms(apply: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    after_rooms(monkeypatch, stop)
    stopped = compress(*apply)
    assert stopped.exit_code == INTERRUPTED
    (printed,) = json.loads(stopped.stdout)
    result, half = history()
    assert (result["room_id"], result["outcome"]) == (printed["room_id"], "compressed")
    assert (half["outcome"], half["rows_before"]) == ("stopped", None)
    assert half["error"]


@pytest.mark.usefixtures("own")
def test_being_stopped_while_a_room_is_recorded_loses_nothing(
    apply: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = store.append_audit_rows

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(store, "append_audit_rows", append)
        stop()

    monkeypatch.setattr(store, "append_audit_rows", interrupted)
    assert compress(*apply).exit_code == INTERRUPTED
    assert [row["outcome"] for row in history()] == ["compressed"]


def test_a_killed_run_has_recorded_finished_rooms(
    own: Settings, apply: list[str], rooms: list[str], source_copy: str
) -> None:
    with closing(open_catalog(own)) as catalog, psycopg.connect(source_copy) as holder:
        tables.ensure_audit_tables(catalog)
        # These locks prevent the second room.
        holder.execute("select from state_groups where room_id = %s for update", [rooms[1]])
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.compression", "compress", *apply], cwd=PROJECT_FOLDER,
            env=environment(own),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        while not recorded(catalog):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        process.kill()
        assert process.communicate()[0] == "begins\n", "it had no time to say anything"
    assert [(row["room_id"], row["outcome"]) for row in history()] == [(rooms[0], "compressed")]


def recorded(catalog: Catalog) -> list[Row]:
    return catalog.load_table(COMPRESSION_RUNS_TABLE).scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def outage(server: EmbeddedServer, own: Settings) -> Iterator[Callable[[bool], None]]:
    """Takes the lake's catalog away, or gives it back."""
    name = urlsplit(str(own.lakehouse_catalog_uri)).path.strip("/")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:

        def set_away(is_away: bool) -> None:
            connection.execute(f"alter database {name} allow_connections {not is_away}".encode())
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])

        yield set_away
        set_away(False)


def test_outcomes_are_recorded_once_the_lake_is_back(
    apply: list[str], outage: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    after_rooms(monkeypatch, lambda: outage(True), lambda: outage(False))
    applied = compress(*apply)
    assert applied.exit_code == 0, applied.stderr
    assert applied.stderr.count("The lake cannot record") == 1
    assert [row["room_id"] for row in history()] == [row["room_id"] for row in json.loads(applied.stdout)]


def test_an_unrecorded_outcome_is_reported_and_stays_applied(
    apply: list[str], outage: Callable[[bool], None], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_states(source_copy)
    after_rooms(monkeypatch, lambda: outage(True))
    applied = compress(*apply)
    assert applied.exit_code == 1
    first, *others = json.loads(applied.stdout)
    assert all(row["groups_rewritten"] > 0 for row in others)
    assert f"The outcome of {', '.join(row['room_id'] for row in others)} is not recorded" in applied.stderr
    assert "not currently accepting connections" in applied.stderr
    assert all_states(source_copy) == before
    outage(False)
    assert [row["room_id"] for row in history()] == [first["room_id"]]

    # Nothing else that goes wrong is hidden by it.
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", "postgresql://nobody@127.0.0.1:1/nothing")
    after_rooms(monkeypatch, stop)
    stopped = compress(*apply)
    assert stopped.exit_code == INTERRUPTED
    assert len(json.loads(stopped.stdout)) == 1
    assert stopped.stderr.startswith("The lake cannot record")
    assert "Error: The outcome of" in stopped.stderr
    assert "Stopped." in stopped.stderr.splitlines()[-1]


def test_others_may_append_at_the_same_time(own: Settings, apply: list[str], rooms: list[str]) -> None:
    over = threading.Event()
    with closing(open_catalog(own)) as catalog:
        tables.ensure_audit_tables(catalog)

        def append() -> None:
            while not over.wait(0.05):
                store.append_audit_rows(
                    catalog, COMPRESSION_RUNS_TABLE, [{"run_id": "state_compression 1", "room_id": f"!{len(others)}"}]
                )
                others.append(None)

        others: list[None] = []
        beside = threading.Thread(target=append)
        beside.start()
        try:
            applied = compress(*apply)
        finally:
            over.set()
            beside.join()
        assert applied.exit_code == 0, applied.stderr
        by_hand = [row["room_id"] for row in recorded(catalog) if row["run_id"].startswith("compress apply")]
    assert sorted(by_hand) == sorted(rooms)
    assert len(others) > 3
