"""Silver and gold of a database full of doubtful redactions, first run ever: Synapse's own loader says the same.

Unit tests of the models run here too, because dbt takes the types of their inputs from the tables of a lake.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sample.environment import synapse_python
from synapse_lakehouse import catalogue
from synapse_lakehouse.lake import tables
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import PROJECT, Settings
from tests.dbt.conftest import dbt_session

RUN = Run("test_synapse_agrees", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))

# Every redaction is to be judged anew; then of every six, each gets another reason not to hold, or only on conditions.
# What Synapse takes for a redaction need not be of that type, so messages can stand in for redactions by other servers.
DOUBTS = """
update redactions set recheck = true;
create temporary table numbered as
  select r.event_id, row_number() over (order by r.event_id) % 6 as number
  from redactions r join events using (event_id);
update event_json set internal_metadata = jsonb_set(internal_metadata::jsonb, '{recheck_redaction}', 'true')::text
  where event_id in (select event_id from numbered where number = 1);
insert into rejections select event_id, 'auth_error', '0' from numbered where number = 2;
update redactions set redacts = (select event_id from events where type = 'm.room.create' limit 1)
  where event_id in (select event_id from numbered where number = 3);
update redactions r set redacts = (select o.event_id from events e join events o on o.room_id <> e.room_id
    where e.event_id = r.event_id and o.type = 'm.room.message' order by o.stream_ordering limit 1)
  where event_id in (select event_id from numbered where number = 4);
update redactions set event_id = 'gone-' || event_id
  where event_id in (select event_id from numbered where number = 5);
update redactions set recheck = false
  where event_id in (select 'gone-' || event_id from numbered where number = 5 order by 1 limit 2);
create temporary table messages as
  select event_id, room_id, sender like '%:synapse.example' as own,
    row_number() over (partition by room_id, sender like '%:synapse.example' order by event_id) as number
  from events where type = 'm.room.message';
insert into redactions (event_id, redacts, received_ts, recheck)
  select mine.event_id, theirs.event_id, 0, true
  from messages mine join messages theirs using (room_id, number) where mine.own and not theirs.own;
update event_json set internal_metadata = jsonb_set(internal_metadata::jsonb, '{recheck_redaction}', 'true')::text
  where event_id in (select event_id from messages where own);
"""


def _synapse_says(dsn: str, scratch: Path) -> dict[str, str | None]:
    command = [synapse_python(), "-m", "tests.dbt.synapse_redactions", dsn, scratch]
    asked = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    said: dict[str, str | None] = json.loads(asked.stdout.splitlines()[-1])
    return said


@pytest.fixture
def built(
    new_lake: Callable[..., Settings],
    source_copy: str,
    spark_app: Callable[[str, Settings, Run], subprocess.CompletedProcess[str]],
) -> Settings:
    """An empty lake, on which one run of the doubtful database built its branch and published nothing."""
    with psycopg.connect(source_copy) as source:
        source.execute(DOUBTS)
    settings = new_lake(synapse_dsn=source_copy)
    tables.ensure(pyiceberg_catalog(settings), catalogue.load())
    for app in ("snapshot_tables", "resolve_state", "build_models"):
        done = spark_app(app, settings, RUN)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "redacted_by" in (settings.lakehouse_home / "dbt" / "target" / "static_index.html").read_text()
    return settings


def _rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    loaded = pyiceberg_catalog(settings).load_table(table)
    assert set(loaded.refs()) == {RUN.branch}, "published too early"
    rows: list[dict[str, Any]] = loaded.scan(snapshot_id=loaded.refs()[RUN.branch].snapshot_id).to_arrow().to_pylist()
    return rows


def test_synapse_shows_the_same_events_redacted(built: Settings, source_copy: str, tmp_path: Path) -> None:
    verdicts = Counter(row["verdict"] for row in _rows(built, "silver.redactions"))
    assert set(verdicts) == {
        "applies", "target_unknown", "target_is_create", "redaction_unknown", "rejected", "other_room", "other_server",
    }  # fmt: skip

    derived = {row["event_id"]: row["redacted_by"] for row in _rows(built, "gold.events")}
    with psycopg.connect(source_copy) as source:
        local = source.execute(
            "select user_id, room_id, event_id from local_current_membership where membership = 'join'"
        ).fetchall()
    stays = {(row["user_id"], row["room_id"], row["membership_event_id"]) for row in _rows(built, "gold.current_rooms")}
    assert stays == set(local)

    # last, because Synapse writes to the database when it starts
    assert derived == _synapse_says(source_copy, tmp_path)

    with dbt_session(built, tmp_path) as session:
        done = session.dbt("test", "--select", "test_type:unit", branch=RUN.branch)
    assert done["success"], done
    assert len(done["results"]) >= 5
