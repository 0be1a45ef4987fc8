"""Commands print only printable text for a lake and a room with hostile text; they need no JVM."""

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from synapse_lakehouse.audit import store as audit_store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, open_catalog
from synapse_lakehouse.iceberg.write.tables import ensure_audit_tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import lake_maker
from tests.support import hostile_text
from tests.support.state_database import state_database, store
from tests.support.state_rooms import World

DAY: Final = datetime(2026, 11, 17, tzinfo=UTC)
RUN: Final = Run(hostile_text.ALL, DAY, DAY + timedelta(days=1))
EVENTS: Final = pa.schema([("event_id", pa.string()), ("type", pa.string()), ("n", pa.int64())])
EXACT: Final = {"class": "lost", "outcome": "compressed", "severity": "warn", "success": False}
"""Columns whose values the product chooses, and by which commands filter rows."""

COMMANDS: Final = {
    "query": ["query", 'select event_id, type as "=a\x1b[31m\u202e\nb", [type] as list from bronze.events'],
    "query of all": ["query", "select * from audit.stream_gaps, audit.checks, audit.incidents"],
    "positions": ["positions"],
    "gaps": ["positions", "--gaps"],
    "history": ["positions", "--history"],
    "releases": ["releases"],
    "branches": ["branches"],
    "compress history": ["compress", "history"],
}
REFUSED: Final = {
    "query": ["query", f"select {hostile_text.ALL}"],
    "a value that cannot be cast": ["query", "select event_id::int from bronze.events where event_id like 'one%'"],
    "no such column": ["query", 'select "a\x1b[31m\u202e\nb" from bronze.events'],
    "branches drop": ["branches", "drop", hostile_text.ALL],
    "who-can-see": ["who-can-see", f"${hostile_text.ALL}"],
    "visible": ["visible", f"@{hostile_text.ALL}", "--room", hostile_text.ALL],
    "state-at": ["state-at", f"${hostile_text.ALL}"],
    "prove-erased": ["prove-erased", "@\x1b[31m\u202e:x"],
    "prove-erased, no user": ["prove-erased", hostile_text.ALL],
    "release": ["summary", "--release", hostile_text.ALL],
    "format": ["positions", "--format", hostile_text.ALL],
    "compress plan": ["compress", "plan", "--strategy", hostile_text.ALL],
    "no such command": [hostile_text.ALL],
}


@pytest.fixture(scope="module")
def lake(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with lake_maker(server, settings, tmp_path_factory.mktemp("hostile")) as make:
        lake_settings = make()
        with closing(open_catalog(lake_settings)) as catalog:
            for schema in SCHEMAS:
                catalog.create_namespace(schema)
            ensure_audit_tables(catalog)
            rows = [
                {"event_id": text, "type": text, "n": n}
                for n, text in enumerate((*hostile_text.TEXTS, hostile_text.ALL))
            ]
            events = catalog.create_table("bronze.events", EVENTS)
            events.append(pa.Table.from_pylist(rows, schema=EVENTS))
            snapshot = events.refs()["main"].snapshot_id
            events.manage_snapshots().create_branch(snapshot, RUN.branch).commit()
            for name, columns in audit_store.AUDIT_SCHEMAS.items():
                row = {field.name: hostile_value(field.type) for field in columns} | EXACT
                row |= {"release": 1, "snapshot_id": snapshot, "tables": {"bronze." + hostile_text.ALL: snapshot}}
                if name == "audit.releases":
                    row |= {"tables": {"bronze.events": snapshot}, "views": {}}
                if name == "audit.snapshots":
                    row |= {"branch": RUN.branch}
                if name == "audit.ledger":
                    row |= {"table_name": "events"}
                declared_names = {field.name for field in columns}
                audit_store.append_audit_rows(
                    catalog, name, [{key: value for key, value in row.items() if key in declared_names}], RUN
                )
        yield lake_settings


def hostile_value(kind: pa.DataType) -> Any:
    """Return a value of an Arrow type; each text in it is hostile."""
    if pa.types.is_list(kind):
        return [hostile_value(kind.value_type)]
    if pa.types.is_map(kind):
        return [(hostile_value(kind.key_type), hostile_value(kind.item_type))]
    if pa.types.is_struct(kind):
        return {field.name: hostile_value(field.type) for field in kind}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return hostile_text.ALL
    if pa.types.is_timestamp(kind):
        return RUN.end
    return False if pa.types.is_boolean(kind) else 1.0 if pa.types.is_floating(kind) else 1


@pytest.fixture
def run_command(lake: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs the command on the lake."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **variables: str) -> Result:
        return CliRunner().invoke(app, arguments, env=lake.to_environment() | {"COLUMNS": "30000"} | variables)

    return run


@pytest.mark.parametrize("name", [*COMMANDS, "summary"])
def test_output_of_commands_is_printable(run_command: Callable[..., Result], name: str) -> None:
    result = run_command(*COMMANDS.get(name, [name]))
    assert result.exit_code == 0, result.output
    assert not hostile_text.list_unprintable(result.output)
    assert r"\x1b" in result.output
    assert "forged\r" not in result.output
    assert not [line for line in result.output.splitlines() if line.startswith(("error: forged", "progress: forged"))]


@pytest.mark.parametrize("name", COMMANDS)
def test_machine_readable_output_is_printable(run_command: Callable[..., Result], name: str) -> None:
    result = run_command(*COMMANDS[name], "--format", "json")
    assert result.exit_code == 0, result.output
    assert not hostile_text.list_unprintable(result.output)
    texts = [item for row in json.loads(result.stdout) for item in row.values() if isinstance(item, str)]
    assert any(hostile_text.ALL in text for text in texts)
    result = run_command(*COMMANDS[name], "--format", "csv")
    assert not hostile_text.list_unprintable(result.output)
    for row in csv.reader(io.StringIO(result.stdout)):
        assert not [item for item in row if item.lstrip(" ").startswith(("=", "+", "-", "@", "\uff1d"))]


@pytest.mark.parametrize("name", REFUSED)
def test_quotes_in_errors_are_printable(run_command: Callable[..., Result], name: str) -> None:
    result = run_command(*REFUSED[name])
    assert result.exit_code in {1, 2}, result.output
    assert "Traceback" not in result.output
    assert not hostile_text.list_unprintable(result.output)
    assert not [line for line in result.output.splitlines() if line.startswith(("error: forged", "progress: forged"))]


def test_a_room_with_hostile_text_is_compressed_and_restored(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, room = World(random.Random(1)), f"!{hostile_text.ALL}:x"
    state = {(hostile_text.ALL, str(number)): f"${number}{hostile_text.ALL}" for number in range(10)}
    for number in range(60):
        state = state | {(hostile_text.ALL, str(number % 10)): f"${number}{hostile_text.TEXTS[0]}"}
        world.add(room, state)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    with state_database(server) as dsn:
        store(world, dsn)
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "insert into state_groups values (100000, %s, '$x'), (100001, %s, '$x')", [f"{room}2", f"{room}2"]
            )
            connection.execute("insert into state_group_edges values (100000, 100001), (100001, 100000)")
        for name in ("SYNAPSE_DSN", "SYNAPSE_WRITE_DSN"):
            monkeypatch.setenv(name, dsn)

        def run(*arguments: str) -> Result:
            result = CliRunner().invoke(app, ["compress", *arguments])
            assert not hostile_text.list_unprintable(result.output), arguments
            return result

        for form in ("table", "csv", "json"):
            assert run("plan", "--strategy", "best", "--format", form).exit_code == 0
            assert run("apply", "--strategy", "best", "--format", form).exit_code == 0
        result = run("apply", "--strategy", "best", "--room", room, "--yes", "--format", "json")
        (row,) = json.loads(result.stdout)
        assert (row["room_id"], row["rows_after"] < row["rows_before"]) == (room, True)
        for form in ("table", "csv", "json"):
            assert run("verify", "--room", room, "--format", form).exit_code in {0, 1}
        assert run("plan", "--room", hostile_text.ALL).exit_code == 1
        files = sorted(map(str, (tmp_path / "compression" / "undo").glob("*.parquet")))
        assert run("undo", *files).exit_code == 0
        assert run("undo", *files, "--yes").exit_code == 0
