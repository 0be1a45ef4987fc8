"""The lake agrees with a real Synapse on a database that contains all cases of the visibility rules."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sample import visibility_answers
from sample.environment import synapse_python
from synapse_lakehouse.cli.events.visibility import set_retention_time
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.room_state.visibility_explanations import VISIBILITY_RULES
from tests.conftest import VisibilityLake, copied_source
from tests.visibility import holding, record
from tests.visibility.mutants import mutants


def test_visibility_of_all_cases_equals_synapse(visibility_lake: VisibilityLake) -> None:
    recorded = visibility_answers.load(record.CASES)
    with duckdb_reader.open_duckdb(visibility_lake.settings) as connection:
        sql = holding.bind_branch(
            connection, visibility_lake.settings, visibility_lake.run.branch, visibility_lake.run.run_id
        )
        set_retention_time(connection, recorded.about["as_of"])
        assert visibility_answers.differences(connection, recorded) == []
        rules = {rule for (rule,) in connection.execute("select distinct rule from gold.event_visibility").fetchall()}
        assert rules == {rule.name for rule in VISIBILITY_RULES} | {"call_invite", "sender_erased"}
        survivors = [
            name for name in mutants(connection, sql) if not visibility_answers.differences(connection, recorded)
        ]
    assert survivors == []


def test_redacted_events_equal_synapse(visibility_lake: VisibilityLake, server: EmbeddedServer, tmp_path: Path) -> None:
    verdicts = Counter(row["verdict"] for row in _rows(visibility_lake, "silver.redactions"))
    assert set(verdicts) == {
        "applies", "target_unknown", "target_is_create", "redaction_unknown", "rejected", "other_room", "other_server",
    }  # fmt: skip
    derived = {row["event_id"]: row["redacted_by"] for row in _rows(visibility_lake, "gold.events")}
    with psycopg.connect(str(visibility_lake.settings.synapse_dsn)) as source:
        joined = source.execute(
            "select user_id, room_id, event_id from local_current_membership where membership = 'join'"
        ).fetchall()
    stays = {
        (row["user_id"], row["room_id"], row["membership_event_id"])
        for row in _rows(visibility_lake, "gold.current_rooms")
    }
    assert stays == set(joined)

    answers = _run_synapse(visibility_lake, server, tmp_path, "redactions")
    unreadable = {
        row["event_id"] for row in _rows(visibility_lake, "silver.event_visibility_inputs") if row["withheld"]
    }
    assert {event_id: redaction for event_id, redaction in derived.items() if event_id in answers} == answers
    assert derived.keys() - answers.keys() <= unreadable


def test_room_properties_equal_synapse(visibility_lake: VisibilityLake, server: EmbeddedServer, tmp_path: Path) -> None:
    answers = _run_synapse(visibility_lake, server, tmp_path, "rooms")
    names = dict.fromkeys(next(iter(answers.values()))) | {"join_rules": "join_rule"}
    derived = {
        row["room_id"]: {name: row[column or name] for name, column in names.items()}
        for row in _rows(visibility_lake, "silver.rooms")
    }
    assert {room_id: row for room_id, row in derived.items() if room_id in answers} == answers
    assert not any(value for room_id in derived.keys() - answers.keys() for value in derived[room_id].values())
    assert {row["room_type"] for row in answers.values()} >= {None, "plain"}


def _run_synapse(
    visibility_lake: VisibilityLake, server: EmbeddedServer, scratch: Path, program: str
) -> dict[str, Any]:
    # Synapse changes the database when it starts.
    with copied_source(server, str(conninfo_to_dict(str(visibility_lake.settings.synapse_dsn))["dbname"])) as copy:
        command: list[str | Path] = [synapse_python(), "-m", f"tests.visibility.synapse_{program}", copy, scratch]
        process = subprocess.run(command, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    output: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return output


def _rows(visibility_lake: VisibilityLake, table: str) -> list[dict[str, Any]]:
    loaded = open_catalog(visibility_lake.settings).load_table(table)
    branch = visibility_lake.run.branch
    rows: list[dict[str, Any]] = loaded.scan(snapshot_id=loaded.refs()[branch].snapshot_id).to_arrow().to_pylist()
    return rows
