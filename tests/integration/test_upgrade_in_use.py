"""A homeserver in use is upgraded through five releases with different schemas, and the lake loses nothing."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sample.environment import VERSION
from sample.homeserver import SERVER_NAME, homeserver
from sample.releases import load_releases, release_python
from sample.settle import settle
from sample.traffic import accounts, forks, messages, moderation, populate, rooms, visibility
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.orchestration.stream_watch_tasks import preflight, watch_streams
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects
from tests.conftest import use_settings
from tests.support.dataframe_compare import compare_with_source, read_release
from tests.support.reader_role import create_role
from tests.support.scenes import Scene, move, play
from tests.support.whole_runs import list_faults, query, run

pytestmark = pytest.mark.heavy

RELEASED = {release.version: release.released for release in load_releases()}
SCENES: dict[str, tuple[Scene, ...]] = {
    "1.120.2": (visibility.all_visibilities, rooms.long_state_chain, messages.redactions, accounts.devices),
    "1.128.0": (visibility.changing_visibility, messages.relations, accounts.receipts, rooms.retention),
    "1.136.0": (forks.forks, moderation.reports, accounts.account_data, moderation.purged_history),
    "1.152.1": (accounts.profiles, rooms.spaces, accounts.ignoring, rooms.knocking),
    VERSION: (visibility.peeking, moderation.deleted_rooms, moderation.erasure),
}
DURING_UPGRADE_TO = "1.152.1"
"""This upgrade alters the tables redactions (1.151) and device_lists_changes_in_room (1.152)."""
LOCKED_TABLES = 30
"""Only a copy locks so many tables."""
REPORTS = (
    "select 'event', id from event_reports union all select 'room', id from room_reports"
    " union all select 'user', id from user_reports"
)
Contents = dict[str, tuple[int, int]]


def test_an_upgrade_in_use_loses_nothing(
    new_lake: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run follows each upgrade, and another run is open during an upgrade that alters tables. If this run still
    copies, it stops for the upgrade, and continues with the new privileges. The role has only the documented ones.
    """
    published: list[Contents] = []
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        server.create_database("homeserver")
        owner, config = server.dsn("homeserver"), tmp_path / "synapse" / "homeserver.yaml"
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("create role reader login password 'p'")
        lake = new_lake(
            synapse_dsn=make_conninfo(owner, user="reader", password="p"), synapse_server_name=SERVER_NAME,
            synapse_config=config,
        )  # fmt: skip
        use_settings(lake, monkeypatch)
        stage = None
        for version, scenes in SCENES.items():
            with release_python(version, RELEASED[version]) as python, ThreadPoolExecutor(1) as runs:
                concurrent_run = runs.submit(run, lake) if version == DURING_UPGRADE_TO else None
                if concurrent_run:
                    await_copy(owner)
                with homeserver(tmp_path / "synapse", dsn=owner, python=python) as hs:
                    assert concurrent_run is None or not concurrent_run.done(), "the run ended before the upgrade"
                    stage = move(stage, hs) if stage else populate(hs)
                    play(stage, scenes, version)
                    settle(owner)
                create_role(lake, "reader", owner)
                if concurrent_run:
                    concurrent_run.result()
                    published.append(read_release(lake))
            for task in (watch_streams, preflight):
                task()
            run(lake)
            published.append(read_release(lake))
            print(f"{version}: {published[-1]['gold.events'][0]} events", flush=True)
        with psycopg.connect(owner) as source:
            assert find_absent_objects(catalogue.load_catalogue(), source) == ()
            reports = {f"{kind} report {id}" for kind, id in source.execute(REPORTS)}
        assert compare_with_source(lake.model_copy(update={"synapse_dsn": owner})) == {}
    assert [read_release(lake, number) for number in range(1, len(published) + 1)] == published
    assert list_faults(lake) == []
    incidents = query(lake, "select kind, subject from audit.incidents where begins")
    assert {(row["kind"], row["subject"]) for row in incidents} == {("new-report", report) for report in reports}


def await_copy(owner: str) -> None:
    """Wait until a run copies the database: it locks all tables against rewrites."""
    locked = (
        "select count(distinct relation) from pg_locks join pg_stat_activity using (pid)"
        " where usename = 'reader' and mode = 'AccessShareLock' and relation in (select oid from pg_class"
        " where relkind = 'r' and relnamespace = 'public'::regnamespace)"
    )
    deadline = time.monotonic() + 300
    with psycopg.connect(owner, autocommit=True) as connection:
        while (connection.execute(locked).fetchone() or (0,))[0] < LOCKED_TABLES:
            assert time.monotonic() < deadline, "no run copies the database"
            time.sleep(0.2)
