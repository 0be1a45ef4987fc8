"""A homeserver in use goes through five releases that differ in what the lakehouse reads: nothing is lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from sample.environment import VERSION
from sample.homeserver import SERVER_NAME, homeserver
from sample.releases import load_releases, release_python
from sample.settle import settle
from sample.traffic import accounts, forks, messages, moderation, populate, rooms, visibility
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects
from tests.support.scenes import Scene, move, play
from tests.support.whole_runs import compare_with_source, list_faults, query, run

pytestmark = pytest.mark.heavy

RELEASED = {release.version: release.released for release in load_releases()}
SCENES: dict[str, tuple[Scene, ...]] = {
    "1.120.2": (visibility.all_visibilities, rooms.long_state_chain, messages.redactions, accounts.devices),
    "1.128.0": (visibility.changing_visibility, messages.relations, accounts.receipts, rooms.retention),
    "1.136.0": (forks.forks, moderation.reports, accounts.account_data, moderation.purged_history),
    "1.152.1": (accounts.profiles, rooms.spaces, accounts.ignoring, rooms.knocking),
    VERSION: (visibility.peeking, moderation.deleted_rooms, moderation.erasure),
}
DURING_UPGRADE_TO = "1.136.0"


def test_an_upgrade_in_use_loses_nothing(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    """A run follows each upgrade, and one runs during an upgrade."""
    counted: list[int] = []
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        server.create_database("homeserver")
        dsn, config = server.dsn("homeserver"), tmp_path / "synapse" / "homeserver.yaml"
        lake = new_lake(synapse_dsn=dsn, synapse_server_name=SERVER_NAME, synapse_config=config)
        stage = None
        for version, scenes in SCENES.items():
            with release_python(version, RELEASED[version]) as python, ThreadPoolExecutor(1) as runs:
                during = runs.submit(run_and_count, lake) if version == DURING_UPGRADE_TO else None
                with homeserver(tmp_path / "synapse", dsn=dsn, python=python) as hs:
                    stage = move(stage, hs) if stage else populate(hs)
                    play(stage, scenes, version)
                    settle(dsn)
                counted += [during.result()] if during else []
            counted.append(run_and_count(lake))
            print(f"{version}: {counted[-1]} events", flush=True)
        with psycopg.connect(dsn) as source:
            assert find_absent_objects(catalogue.load_catalogue(), source) == ()
        assert compare_with_source(lake) == {}
    assert [count_events(lake, number) for number in range(1, len(counted) + 1)] == counted
    assert list_faults(lake) == []
    assert query(lake, "select kind, subject from audit.incidents where begins") == []


def run_and_count(lake: Settings) -> int:
    """Run the DAG; the events of the release."""
    run(lake)
    return count_events(lake)


def count_events(lake: Settings, release: int | None = None) -> int:
    with duckdb_reader.open_duckdb(lake) as reader:
        of_release = duckdb_reader.get_release(reader, lake, release)
        duckdb_reader.create_views(reader, lake, of_release, ["gold.events"])
        (count,) = reader.execute("select count(*) from gold.events").fetchone() or (0,)
    return int(count)
