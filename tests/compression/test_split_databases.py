"""``lakehouse compress`` has the same result in a separate state database as in a single database."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner, Result

from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.compression.conftest import BEST, undo_files
from tests.support.reader_role import reader_role, run_script
from tests.support.split_source import split_source
from tests.support.state_database import all_states, read_state

TIMES = (
    "seconds",
    "read_ms_before",
    "read_ms_after",
    "longest_lock_ms",
    "disk_bytes_before",
    "disk_bytes_after",
    "undo",
)


@pytest.fixture
def split(server: EmbeddedServer) -> Iterator[tuple[str, str]]:
    with split_source(server) as databases:
        yield databases


@contextmanager
def role_settings(settings: Settings, main: str, state: str) -> Iterator[dict[str, Any]]:
    """Settings with the roles of ``lakehouse grants`` in both databases."""
    split_settings = settings.model_copy(update={"synapse_dsn": main, "synapse_state_dsn": state})
    with reader_role(split_settings, main) as reader:
        writer = f"{reader.name}_compressor"
        run_script(split_settings, state, "grants", "--compress", "--role", writer)
        run_script(split_settings, state, "grants", "--state", "--role", reader.name)
        with psycopg.connect(state, autocommit=True) as owner:
            owner.execute(f"alter role {writer} password 'p'".encode())
            yield {
                "synapse_dsn": reader.dsn,
                "synapse_state_dsn": make_conninfo(state, user=reader.name, password="p"),
                "synapse_write_dsn": make_conninfo(state, user=writer, password="p"),
            }
            owner.execute(f"drop owned by {reader.name}, {writer}; drop role {writer}".encode())


@pytest.fixture
def split_roles(settings: Settings, split: tuple[str, str]) -> Iterator[dict[str, Any]]:
    with role_settings(settings, *split) as roles:
        yield roles


def invoke(overrides: dict[str, Any], *arguments: str) -> Result:
    environment = Settings(_env_file=None, synapse_server_name="synapse.example", **overrides).to_environment()
    return CliRunner().invoke(app, ["compress", *arguments], env=environment)


def read_pending_groups(dsn: str) -> set[int]:
    with psycopg.connect(dsn) as connection:
        return {group for (group,) in connection.execute("select state_group from state_groups_pending_deletion")}


def test_a_state_database_is_compressed_like_a_single_one(
    split: tuple[str, str], split_roles: dict[str, Any], source_copy: str, tmp_path: Path
) -> None:
    _, state = split
    single: dict[str, Any] = {
        "synapse_dsn": source_copy,
        "synapse_write_dsn": source_copy,
        "lakehouse_home": tmp_path / "whole",
    }
    split_roles["lakehouse_home"] = tmp_path / "parts"

    def compress(overrides: dict[str, Any], *arguments: str) -> list[dict[str, object]]:
        result = invoke(overrides, *arguments, "--format", "json")
        assert result.exit_code == 0, result.output
        rows: list[dict[str, object]] = json.loads(result.stdout)
        return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]

    states, before = all_states(state), read_pending_groups(state)
    assert compress(split_roles, "plan", *BEST) == compress(single, "plan", *BEST)
    apply = ("apply", *BEST, "--hand-over-unreferenced", "--yes")
    applied_rows = compress(split_roles, *apply)
    assert applied_rows == compress(single, *apply)
    assert sum(int(str(row["handed_over"])) for row in applied_rows) > 0
    assert read_state(state) == read_state(source_copy)
    assert all_states(state) == states
    assert read_pending_groups(state) == read_pending_groups(source_copy) > before
    files = [argument for file in undo_files(tmp_path / "parts") for argument in ("--undo", str(file))]
    assert {row["faults"] for row in compress(split_roles, "verify", *BEST, *files)} == {""}
    for overrides, folder in ((split_roles, "parts"), (single, "whole")):
        undo_result = invoke(overrides, "undo", *undo_files(tmp_path / folder), "--yes")
        assert undo_result.exit_code == 0, undo_result.output
    assert read_state(state) == read_state(source_copy)
    assert all_states(state) == states


def test_the_version_of_the_state_database_decides(
    split: tuple[str, str], split_roles: dict[str, Any], tmp_path: Path
) -> None:
    for dsn, code in zip(split, (0, 1), strict=True):
        with psycopg.connect(dsn) as owner:
            owner.execute("update schema_version set version = 87")
        result = invoke(split_roles | {"lakehouse_home": tmp_path}, "apply", *BEST, "--number-of-rooms", "1", "--yes")
        assert (result.exit_code, "version 87" in result.stderr) == (code, bool(code))


def test_state_of_another_homeserver_is_not_compressed(
    split: tuple[str, str], split_roles: dict[str, Any], tmp_path: Path
) -> None:
    _, state = split
    with psycopg.connect(state) as owner:
        owner.execute("update state_groups set room_id = '!of_another_homeserver' || id")
    before = read_state(state), read_pending_groups(state)
    for setting, arguments in (
        ("SYNAPSE_STATE_DSN", ("plan",)),
        ("SYNAPSE_WRITE_DSN", ("apply", *BEST, "--hand-over-unreferenced", "--yes")),
    ):
        result = invoke(split_roles | {"lakehouse_home": tmp_path}, *arguments)
        assert result.exit_code == 1
        assert setting in result.stderr
    assert (read_state(state), read_pending_groups(state)) == before


def test_former_state_tables_of_main_are_not_compressed(
    split: tuple[str, str], source_copy: str, tmp_path: Path
) -> None:
    databases = {"synapse_dsn": source_copy, "synapse_state_dsn": split[1], "synapse_write_dsn": source_copy}
    before = read_state(source_copy)
    result = invoke(databases | {"lakehouse_home": tmp_path}, "apply", *BEST, "--yes")
    assert result.exit_code == 1
    assert "is not the database" in result.stderr
    assert read_state(source_copy) == before
