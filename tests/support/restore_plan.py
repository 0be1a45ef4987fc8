"""Helpers for the tests of ``lakehouse state restore-plan``."""

import subprocess
from pathlib import Path

import psycopg
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.local.postgres.embedded_postgres import BIN
from tests.support.hostile_text import list_unprintable
from tests.support.state_releases import TABLES, StateReleases
from tests.support.state_rooms import State, resolve_state


def print_plan(releases: StateReleases, *arguments: str) -> str:
    """Run ``lakehouse state restore-plan``, which must succeed, and return its output."""
    result = CliRunner().invoke(app, ["state", "restore-plan", *arguments], env=releases.settings.to_environment())
    assert result.exit_code == 0, result.output
    assert not list_unprintable(result.stdout)
    return result.stdout


def run_sql(dsn: str, script: str, folder: Path) -> None:
    """Run a plan with psql."""
    file = folder / "plan.sql"
    file.write_text(script)
    subprocess.run([BIN / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", file, dsn], check=True, capture_output=True)


def read_tables(dsn: str, tables: tuple[str, ...] = TABLES) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of the tables, sorted."""
    with psycopg.connect(dsn) as connection:
        return {name: sorted(connection.execute(f"select * from {name}".encode()), key=repr) for name in tables}


def execute(dsn: str, *statements: str) -> None:
    """Execute SQL in Synapse's database."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        for statement in statements:
            owner.execute(statement.encode())


def store_group(dsn: str, group: int, room: str, pieces: dict[str, str], prev: int | None = None) -> None:
    """Store a state group in another way: with the rows of ``pieces``, and as a delta of ``prev``."""
    execute(
        dsn,
        f"delete from state_groups_state where state_group = {group}",
        f"delete from state_group_edges where state_group = {group}",
        *([f"insert into state_group_edges values ({group}, {prev})"] if prev else []),
        *(
            f"insert into state_groups_state values ({group}, '{room}', '{type_}', '', '{event}')"
            for type_, event in pieces.items()
        ),
    )


def delete_group(dsn: str, group: int) -> None:
    """Delete a state group as Synapse does."""
    store_group(dsn, group, "", {})
    execute(dsn, f"delete from state_groups where id = {group}")


def read_states(dsn: str, room: str) -> dict[int, State]:
    """Return the state of each group of the room."""
    with psycopg.connect(dsn) as connection:
        edges: dict[int, int] = dict(
            connection.execute("select state_group, prev_state_group from state_group_edges").fetchall()
        )
        own: dict[int, State] = {}
        for group, type_, key, event in connection.execute(
            "select state_group, type, state_key, event_id from state_groups_state where room_id = %s", [room]
        ):
            own.setdefault(group, {})[type_, key] = event
        groups = connection.execute("select id from state_groups where room_id = %s", [room]).fetchall()
    return {group: resolve_state(edges, own, group) for (group,) in groups}
