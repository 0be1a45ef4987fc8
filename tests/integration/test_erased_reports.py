"""After Synapse deletes reports and rooms, maintenance removes their names from all rows, files and pages."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.report.page_location import get_page_path
from tests.conftest import lakehouse
from tests.support.privacy_canaries import contents

REPORTER, TARGET, ROOM, ABANDONED = (f"{name}:gone.example" for name in ("@zzby", "@zzbad", "!zzroom", "!zzempty"))
EVENT = "$zzevent"
FEDERATED = "!J3Du0M-Y16fZW3Ua3eFTP08j-d9ImZGF_n4wqFXJPS4"
"""A room of the sample with live events of another server."""
PLANTED = f"""
insert into rooms (room_id, is_public, creator, room_version, has_auth_chain_index)
  values ('{ABANDONED}', false, '{TARGET}', '10', true);
insert into event_reports (id, received_ts, room_id, event_id, user_id)
  values (901, (extract(epoch from now()) * 1000)::bigint, '{ROOM}', '{EVENT}', '{REPORTER}');
insert into room_reports (id, received_ts, room_id, user_id, reason)
  values (901, (extract(epoch from now()) * 1000)::bigint, '{ROOM}', '{REPORTER}', '');
insert into user_reports (id, received_ts, target_user_id, user_id, reason)
  values (901, (extract(epoch from now()) * 1000)::bigint, '{TARGET}', '{REPORTER}', '');
"""
QUERIES = {
    "reports": "select count(*) as n from gold.reports where reporter_id = '@zzby:gone.example'",
    "incidents": "select count(*) as n from audit.incidents where kind = 'new-report' and begins and sink is null",
    "cleanup": "select count(*) as n from gold.room_cleanup where room_id = '!zzempty:gone.example'",
    "delay": "select coalesce(sum(events), 0)::int as n from gold.federation_delay",
    "federated": f"""
        select count(*) as n from gold.events
        where room_id = '{FEDERATED}' and stream_ordering > 0 and not outlier and not rejected
            and not coalesce(soft_failed, false) and sender not like '%:synapse.example'
            and event_id not in (select event_id from bronze.ex_outlier_stream)
    """,
}


def erase(source: str) -> None:
    """Delete the reports, and the rooms from each table."""
    with psycopg.connect(source, autocommit=True) as owner:
        owner.execute("set session_replication_role = replica")
        events = [id for (id,) in owner.execute("select event_id from events where room_id = %s", [FEDERATED])]
        for reports in ("event_reports", "room_reports", "user_reports"):
            owner.execute(f"delete from {reports} where id = 901".encode())
        for table in load_catalogue().tables:
            columns = {column.name for column in table.columns}
            if "event_id" in columns:
                owner.execute(f"delete from {table.name} where event_id = any(%s)".encode(), [events])
            if "room_id" in columns:
                rooms = [FEDERATED, ABANDONED]
                owner.execute(f"delete from {table.name} where room_id = any(%s)".encode(), [rooms])


def query(settings: Settings) -> dict[str, int]:
    """Return the result of each query."""

    def count(sql: str) -> Any:
        (row,) = json.loads(lakehouse(settings, "query", sql, "--format", "json").stdout)
        return row["n"]

    return {name: count(sql) for name, sql in QUERIES.items()}


def find_names(settings: Settings, names: list[str]) -> set[str]:
    """Return the names that a table of the lake, except ``audit.deletions``, or the page contains.

    That table lists the keys of deleted rows, and manifests contain bounds of keys until they expire (ADR 0008).
    """
    warehouse = Path(settings.warehouse.removeprefix("file://"))
    files = [*contents(warehouse), *contents(get_page_path(settings.lake_folder).parent)]
    return {
        name
        for path, content in files
        if path.suffix != ".avro" and not path.is_relative_to(warehouse / "audit" / "deletions")
        for name in names
        if name.encode() in content
    }


@pytest.mark.heavy
def test_deleted_reports_and_rooms_are_named_nowhere(new_lake: Callable[..., Settings], source_copy: str) -> None:
    settings = new_lake(synapse_dsn=source_copy, lakehouse_erasure_days=0)
    names = [REPORTER, TARGET, ROOM, EVENT, ABANDONED, FEDERATED]
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("set session_replication_role = replica")
        owner.execute(PLANTED.encode())
    result = lakehouse(settings, "run")
    assert result.returncode == 0, result.stdout + result.stderr
    result = lakehouse(settings, "airflow", "dags", "test", "stream_watch")
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    before = query(settings)
    assert (before["reports"], before["incidents"], before["cleanup"]) == (3, 3, 1)
    assert find_names(settings, names) == set(names)
    assert before["federated"] > 10
    erase(source_copy)

    result = lakehouse(settings, "airflow", "dags", "test", "lake_maintenance")

    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    assert query(settings) == {
        "reports": 0,
        "incidents": 3,
        "cleanup": 0,
        "delay": before["delay"] - before["federated"],
        "federated": 0,
    }
    assert find_names(settings, names) == set()
