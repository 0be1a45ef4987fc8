"""Compression refuses some rooms and databases, and reports the reasons."""

import re
import uuid
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.cli import app
from synapse_lakehouse.compressor.postgres import progress_store
from synapse_lakehouse.compressor.postgres.connection import open_write_connection
from synapse_lakehouse.compressor.postgres.progress_tables import PRIVILEGES
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.access.preflight import explain_unsupported_version
from synapse_lakehouse.postgres.errors import SourceError
from tests.compression.conftest import BEST, EVERY_ROOM, Compress, rows
from tests.support.state_database import read_state
from tests.support.state_rooms import World


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--levels", ""], "positive whole numbers"),
        (["--levels", "0,5"], "positive whole numbers"),
        (["--levels", "-5"], "positive whole numbers"),
        (["--levels", "a"], "positive whole numbers"),
        (["--levels", "99999999999999999999"], "positive whole numbers"),
        (["--strategy", "worst"], "levels or best"),
        (["--chunk-size", "0"], "should be greater than or equal to 1"),
        (["--max-chain", "0"], "should be greater than or equal to 1"),
    ],
)
def test_invalid_options_are_refused(compress: Compress, options: list[str], message: str) -> None:
    result = compress("postgresql://nobody@127.0.0.1:1/nothing", "plan", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_bad_groups_are_skipped_and_never_changed(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, world = rooms
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "update state_group_edges set prev_state_group = 1000000 where state_group = %s", [max(world.edges)]
        )
    bad_room = world.groups[max(world.edges)]
    result = rows(compress(dsn, "apply", *BEST, *EVERY_ROOM, "--yes", "--format", "json"))
    (skipped_row,) = [row for row in result if row["skipped"]]
    assert skipped_row["room_id"] == bad_room
    assert "is not older" in skipped_row["skipped"]
    verify_result = compress(dsn, "verify", "--room", bad_room)
    assert verify_result.exit_code == 1
    assert "is not older" in " ".join(verify_result.output.split())
    assert "missing" in verify_result.output


def test_invalid_levels_stop_only_the_strategy_levels(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, world = rooms
    room = world.groups[max(world.edges)]
    with psycopg.connect(dsn) as connection:
        progress_store.create_tables(connection)
        connection.execute("insert into state_compressor_state values (%s, 2, 50, 0, null)", [room])

    (skipped_row,) = rows(compress(dsn, "apply", "--room", room, "--yes", "--format", "json"))
    assert "level 1 is missing" in skipped_row["skipped"]
    assert "state_compressor_progress" in skipped_row["skipped"]

    before = read_state(dsn)
    (result,) = rows(compress(dsn, "apply", *BEST, "--room", room, "--yes", "--format", "json"))
    assert not result["skipped"]
    assert read_state(dsn) != before
    undo_result = compress(dsn, "undo", *result["undo"].split(), "--yes")
    assert undo_result.exit_code == 0, undo_result.output
    assert read_state(dsn) == before


def test_an_unreadable_room_takes_no_place_in_the_selection(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, _ = rooms
    (largest,) = rows(compress(dsn, "plan", "--number-of-rooms", "1", "--format", "json"))
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into state_groups_state select state_group, room_id, type, state_key, '$other' from"
            " state_groups_state where state_group = (select max(id) from state_groups where room_id = %s) limit 1",
            [largest["room_id"]],
        )
    for command in (("plan",), ("apply", "--yes")):
        skipped_row, result = rows(compress(dsn, *command, "--number-of-rooms", "1", "--format", "json"))
        assert skipped_row["room_id"] == largest["room_id"] != result["room_id"]
        assert "two events for one type" in skipped_row["skipped"]
        assert result["skipped"] is None
    _, next_room = rows(compress(dsn, "apply", "--yes", "--number-of-rooms", "1", "--format", "json"))
    assert next_room["room_id"] != result["room_id"]


def test_error_messages_name_the_room_or_the_setting(
    compress: Compress, rooms: tuple[str, World], server: EmbeddedServer
) -> None:
    dsn, _ = rooms
    unknown_room = compress(dsn, "plan", "--room", "!nowhere")
    assert unknown_room.exit_code == 1
    assert unknown_room.stderr.count("!nowhere") == 1
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create role looker login password 'p'")
        try:
            with psycopg.connect(dsn, autocommit=True) as owner:
                owner.execute("grant select on all tables in schema public to looker")
            looker_dsn = psycopg.conninfo.make_conninfo(dsn, user="looker", password="p")
            assert compress(looker_dsn, "plan").exit_code == 0
            result = compress(looker_dsn, "apply", "--yes")
            assert result.exit_code == 1
            assert "SYNAPSE_WRITE_DSN" in result.stderr
            assert "lakehouse grants --compress" in result.stderr
        finally:
            with psycopg.connect(dsn, autocommit=True) as owner:
                owner.execute("drop owned by looker")
            connection.execute("drop role looker")
    wrong_database = compress(server.dsn(), "plan")
    assert wrong_database.exit_code == 1
    assert "SYNAPSE" in wrong_database.stderr
    unreachable_database = compress("postgresql://nobody:p@127.0.0.1:1/nothing", "plan")
    assert (unreachable_database.exit_code, "Check host and port in SYNAPSE_DSN" in unreachable_database.stderr) == (
        1,
        True,
    )


def test_apply_refuses_the_database_of_another_homeserver(
    compress: Compress, rooms: tuple[str, World], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNAPSE_DSN", source_copy)
    monkeypatch.setenv("SYNAPSE_WRITE_DSN", rooms[0])
    before = read_state(rooms[0])
    for arguments in (["apply"], ["apply", "--yes"]):
        result = CliRunner().invoke(app, ["compress", *arguments])
        assert (result.exit_code, "SYNAPSE_WRITE_DSN does not contain the state" in result.stderr) == (1, True)
    assert read_state(rooms[0]) == before


def test_apply_needs_its_own_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["compress", "apply"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: SYNAPSE_WRITE_DSN is not set")


def test_without_a_cache_folder_nothing_is_written(
    compress: Compress, rooms: tuple[str, World], tmp_path: Path
) -> None:
    dsn, _ = rooms
    (tmp_path / "compression").write_text("in the way")
    before = read_state(dsn)
    result = compress(dsn, "apply", *BEST, "--room", "!whole", "--yes")
    assert result.exit_code == 1
    assert "undo" in result.stderr
    assert read_state(dsn) == before


def test_a_file_that_is_no_undo_file_is_refused(compress: Compress, rooms: tuple[str, World], tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_text("nothing")
    result = compress(rooms[0], "verify", "--undo", str(file))
    assert result.exit_code == 1
    assert "cannot be read as an undo file" in result.stderr


@pytest.mark.parametrize(("version", "compatible_with"), [(87, 84), (99, 99)])
def test_an_unsupported_version_is_not_compressed(
    compress: Compress, source_copy: str, version: int, compatible_with: int
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = %s", [version])
        owner.execute("update schema_compat_version set compat_version = %s", [compatible_with])
        message = explain_unsupported_version(owner, load_catalogue(), version)
    before = read_state(source_copy)
    for command in (("plan",), ("apply", *BEST, "--yes"), ("verify",)):
        result = compress(source_copy, *command)
        assert (result.exit_code, result.stderr.strip()) == (1, f"Error: {message}")
    with pytest.raises(SourceError, match=str(version)), open_write_connection(source_copy):
        pass
    assert read_state(source_copy) == before


def test_a_later_compatible_version_is_compressed_with_a_warning(
    compress: Compress, source_copy: str, caplog: pytest.LogCaptureFixture
) -> None:
    preflight._warn_once.cache_clear()
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 999")
    assert rows(compress(source_copy, "plan", *BEST, "--format", "json"))
    assert rows(compress(source_copy, "apply", *BEST, "--yes", "--format", "json"))
    (warning,) = [record.getMessage() for record in caplog.records if "version 999" in record.getMessage()]
    assert "Upgrade the lakehouse" in warning


def test_groups_are_not_handed_over_before_1_124(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, _ = rooms
    before = read_state(dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("drop table state_groups_pending_deletion cascade")
    result = compress(dsn, "apply", *BEST, "--yes", "--hand-over-unreferenced")
    assert result.exit_code == 1
    assert "Upgrade Synapse" in result.stderr
    assert read_state(dsn) == before


def test_the_compressor_s_role_can_only_compress(compress: Compress, source_copy: str) -> None:
    name = f"compressor_{uuid.uuid4().hex[:8]}"
    script = CliRunner().invoke(app, ["grants", "--compress", "--role", name])
    reader_script = CliRunner().invoke(app, ["grants", "--role", f"{name}_reader"])
    with psycopg.connect(source_copy, autocommit=True) as owner:
        for _ in range(2):
            owner.execute(script.stdout.encode())
        owner.execute(reader_script.stdout.encode())
        owner.execute(f"alter role {name} password 'p'".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(source_copy, user=name, password="p")
            options = (*BEST, "--number-of-rooms", "3", "--yes", "--hand-over-unreferenced", "--format", "json")
            assert any(row["groups_rewritten"] for row in rows(compress(dsn, "apply", *options)))
            owner.execute(f"alter role {name}_reader password 'p'".encode())
            reader_dsn = psycopg.conninfo.make_conninfo(source_copy, user=f"{name}_reader", password="p")
            assert rows(compress(reader_dsn, "plan", "--format", "json"))
            with psycopg.connect(dsn, autocommit=True) as session:
                tables = [
                    table
                    for (table,) in owner.execute("select tablename from pg_tables where schemaname = 'public'")
                    if table not in PRIVILEGES
                ]
                for statement in (
                    *(f"select from {table}" for table in tables),
                    *(f"delete from {table}" for table in [*tables, "state_groups", "state_groups_pending_deletion"]),
                    "update state_groups set id = id", "insert into state_groups values (1, '', '')",
                    "update schema_version set version = 1", "delete from schema_version",
                    "truncate state_groups_state", "create table public.mine (id int)",
                ):  # fmt: skip
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        session.execute(statement.encode())
            owner.execute(f"revoke select on state_groups_pending_deletion from {name}".encode())
            result_without_grant = compress(dsn, "apply", *options)
            assert (
                result_without_grant.exit_code,
                "on state_groups_pending_deletion, so" in result_without_grant.stderr,
            ) == (1, True)
            owner.execute(f"grant select on state_groups_pending_deletion to {name}".encode())
            owner.execute("alter table state_groups enable row level security")
            for result in (compress(dsn, "apply", *options), compress(reader_dsn, "plan")):
                assert result.exit_code == 1
                assert re.search("security .*state_groups", result.stderr)
        finally:
            owner.execute(f"drop owned by {name}, {name}_reader; drop role {name}, {name}_reader".encode())


def test_a_number_of_rooms_selects_the_largest(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, _ = rooms
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_ROOMS", "!whole")
    assert [row["room_id"] for row in rows(compress(dsn, "plan", "--format", "json"))] == ["!whole"]
    assert len(rows(compress(dsn, "plan", "--number-of-rooms", "3", "--format", "json"))) == 3
