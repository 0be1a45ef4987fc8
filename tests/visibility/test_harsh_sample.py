"""A database in which everything happens that decides who sees what: the lake says what a real Synapse says of it."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sample.environment import synapse_python
from synapse_lakehouse import catalogue
from synapse_lakehouse.cli.visibility import judge_at
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.lake import duck, tables
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import PROJECT, Settings
from synapse_lakehouse.state.rules import ORDER
from tests.conftest import copied_source, lake_maker, run_app
from tests.visibility import answers, holding, record
from tests.visibility.mutants import mutants

RUN = Run("test_harsh_sample", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))


@pytest.fixture(scope="module")
def harsh(server: Server, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """An empty lake, on which one run of the harsh database built its branch and published nothing."""
    with copied_source(server) as dsn, lake_maker(server, settings, tmp_path_factory.mktemp("harsh")) as new_lake:
        with psycopg.connect(dsn) as source:
            source.execute(record.HARSH_SQL.read_text())
        lifetime = answers.load(record.HARSH).about["sections"]["retention"]["default_policy"]["max_lifetime"]
        own = new_lake(
            synapse_dsn=dsn, lakehouse_retention_enabled=True, lakehouse_retention_max_lifetime=str(lifetime)
        )
        tables.ensure(pyiceberg_catalog(own), catalogue.load())
        for app in ("snapshot_tables", "resolve_state", "build_models"):
            done = run_app(app, own, RUN)
            assert done.returncode == 0, done.stdout + done.stderr
        assert "redacted_by" in (own.lakehouse_home / "dbt" / "target" / "static_index.html").read_text()
        yield own


def test_every_answer_on_the_harsh_sample_is_synapse_s(harsh: Settings) -> None:
    recorded = answers.load(record.HARSH)
    with duck.connect(harsh) as connection:
        sql = holding.bind_branch(connection, harsh, RUN.branch, RUN.run_id)
        judge_at(connection, recorded.about["as_of"])
        assert holding.differences(connection, recorded) == []
        rules = {rule for (rule,) in connection.execute("select distinct rule from gold.event_visibility").fetchall()}
        assert rules == {one.name for one in ORDER} | {"call_invite", "sender_erased"}
        survivors = [wrong for wrong in mutants(connection, sql) if not holding.differences(connection, recorded)]
    assert survivors == []


def test_synapse_shows_the_same_events_redacted(harsh: Settings, tmp_path: Path) -> None:
    verdicts = Counter(row["verdict"] for row in _rows(harsh, "silver.redactions"))
    assert set(verdicts) == {
        "applies", "target_unknown", "target_is_create", "redaction_unknown", "rejected", "other_room", "other_server",
    }  # fmt: skip
    derived = {row["event_id"]: row["redacted_by"] for row in _rows(harsh, "gold.events")}
    with psycopg.connect(str(harsh.synapse_dsn)) as source:
        local = source.execute(
            "select user_id, room_id, event_id from local_current_membership where membership = 'join'"
        ).fetchall()
    stays = {(row["user_id"], row["room_id"], row["membership_event_id"]) for row in _rows(harsh, "gold.current_rooms")}
    assert stays == set(local)

    # last, because Synapse writes to the database when it starts
    said = _synapse_says(str(harsh.synapse_dsn), tmp_path)
    unreadable = {row["event_id"] for row in _rows(harsh, "silver.event_circumstances") if row["withheld"]}
    assert {event_id: by for event_id, by in derived.items() if event_id in said} == said
    assert derived.keys() - said.keys() <= unreadable


def _synapse_says(dsn: str, scratch: Path) -> dict[str, str | None]:
    command = [synapse_python(), "-m", "tests.visibility.synapse_redactions", dsn, scratch]
    asked = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    said: dict[str, str | None] = json.loads(asked.stdout.splitlines()[-1])
    return said


def _rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    loaded = pyiceberg_catalog(settings).load_table(table)
    assert set(loaded.refs()) == {RUN.branch}, "published too early"
    rows: list[dict[str, Any]] = loaded.scan(snapshot_id=loaded.refs()[RUN.branch].snapshot_id).to_arrow().to_pylist()
    return rows
