"""The second of two runs finds a thousand seeded faults of more than fifty kinds, planted between the runs.

The run may miss up to 2% of the faults, if another fault in the same room hides them. No two faults affect the same
state group, event or row, or neighbouring events in the room's graph. The findings are new and, except those about
receipts, above "info".
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from sample.settle import settle
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build import project
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.room_state.resolve import resolve_rooms
from tests.integration.federated_load import LOCAL, Load, federation
from tests.support import seeded_faults
from tests.support.branch_views import create_branch_views
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake

pytestmark = pytest.mark.heavy

SEED = int(os.environ.get("FAULT_SEED") or time.time())
PER_KIND = 20
PER_KIND_FEDERATED = 40
"""Faults of each kind in the federated database. It has less data, and no rows for some kinds."""
LOAD_SECONDS = 300
MINIMUM_FOUND = 0.98
INFORMATION = {"receipt_without_event"}
"""Checks whose findings healthy databases have too."""


def test_faults_of_the_sample_are_found(new_lake: Callable[..., Settings], source_copy: str) -> None:
    faults = _check_faults(new_lake(synapse_dsn=source_copy), source_copy, PER_KIND)
    assert faults >= 1000


def test_faults_after_federation_are_found(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with _federated_database(tmp_path) as (dsn, config):
        lake = new_lake(synapse_dsn=dsn, synapse_server_name=LOCAL, synapse_config=config)
        assert _check_faults(lake, dsn, PER_KIND_FEDERATED) >= 1000


def _check_faults(lake: Settings, dsn: str, per_kind: int) -> int:
    """Plant faults after a release, and compare them with the findings of a second run; return their number."""
    print(f"FAULT_SEED={SEED}")
    with open_incremental_lake(lake) as releases:
        before = _read_findings(lake, _build(releases))
        with psycopg.connect(dsn) as source:
            faults = seeded_faults.plant(source, SEED, per_kind)
        findings = _read_findings(lake, _build(releases))
    new = {finding for finding, _ in findings - before}
    serious = {finding for finding, severity in findings - before if severity != "info" or finding[0] in INFORMATION}
    found_faults = seeded_faults.find(faults, serious)
    print("\n".join(seeded_faults.describe(faults, serious)))
    missed = [fault for fault in faults if fault not in found_faults]
    print(missed)
    assert len({fault.kind for fault in faults}) >= 25
    assert len(found_faults) >= MINIMUM_FOUND * len(faults)
    rooms = Counter(fault.room for fault in faults)
    assert [fault for fault in missed if rooms[fault.room] == 1] == []
    assert [finding for finding in new if finding[1] not in rooms and finding[1]] == []
    return len(faults)


def _build(releases: IncrementalLake) -> str:
    """Copy the database, resolve its state, build all models, and publish; return the run's branch."""
    app = releases.app()
    releases.copy(app)
    resolve_rooms(app.spark, app.catalog, app.run.branch)
    project.build_project(app)
    releases.publish(app)
    return app.run.branch


def _read_findings(lake: Settings, branch: str) -> set[tuple[seeded_faults.Finding, str]]:
    """Return the findings on the branch, each with its severity."""
    with duckdb_reader.open_duckdb(lake) as connection:
        create_branch_views(connection, lake, branch, ["gold.state_integrity"])
        rows = connection.execute("select check_name, room_id, subject, severity from gold.state_integrity").fetchall()
        return {((check, room, subject), severity) for check, room, subject, severity in rows}


@contextmanager
def _federated_database(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the URI of the database of a homeserver after federation, and the homeserver's configuration file."""
    with embedded_postgres.run_server(folder / "postgres", options=["fsync=off"]) as server:
        with federation(server, folder) as (local, remote):
            load = Load(local, remote, SEED)
            with load.running():
                time.sleep(LOAD_SECONDS)
            assert load.broken == []
            settle(server.dsn("here"))
        yield server.dsn("here"), local.config_path
