"""A process that runs may be killed in: each line of its input is the number of a run, each of its output an outcome.

``ready`` when its JVM is up, then for each run ``done``. A run that fails is tried once more, as Airflow would; a
process that dies leaves its lease, its branch and its files to the next one.
"""

import sys
import traceback

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.iceberg.write import branches, tables
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.spark_app import SparkApp
from tests.support.incremental_lake import AdvancingLake
from tests.support.runs import acquire_when_free

WAIT_SECONDS = 120
NAMES = (
    "events", "event_json", "event_edges", "state_groups_state", "state_groups", "room_memberships", "rooms",
    "rejections", "receipts_linearized", "erased_users",
)  # fmt: skip


def few_tables() -> Catalogue:
    """Return the large tables and some small ones, so that a run is quick and has several phases."""
    full = catalogue.load_catalogue()
    return full.model_copy(update={"tables": tuple(map(full.table, NAMES))})


def main() -> None:
    """Serve runs until the input ends."""
    # Tables of the sample in many chunks, so that whole copies are interrupted between them, each read by a worker.
    patch, few = pytest.MonkeyPatch(), few_tables()
    patch.setattr(page_ranges, "PAGES_PER_CHUNK", 64)
    patch.setattr(page_ranges, "SMALL_TABLE_PAGES", 0)
    patch.setattr(catalogue, "load_catalogue", lambda: few)
    lake = AdvancingLake(Settings(_env_file=None))
    lake.app().spark.range(1).count()
    print("ready", flush=True)
    for line in sys.stdin:
        lake.runs = int(line) - 1
        _run(lake, lake.app())
        print("done", flush=True)


def _run(lake: AdvancingLake, app: SparkApp) -> None:
    """Open, copy, publish and close, as the DAG's tasks do."""
    tables.ensure_tables(app.catalog, catalogue.load_catalogue())
    lease = Lease(app.catalog, app.run.run_id, app.run.branch, lake.settings.lakehouse_lease_seconds)
    crashed = acquire_when_free(lease, WAIT_SECONDS)
    if app.run.branch not in crashed:
        branches.drop_branch(app.catalog, app.run.branch)
    if crashed:
        branches.resume_branch(app.catalog, crashed, app.run.branch)
        lease.settle()
    try:
        _copied_and_published(lake, app, lease)
    except Exception:  # noqa: BLE001 - whatever a kill makes of it
        traceback.print_exc()
        _copied_and_published(lake, app, lease)
    lease.release()


def _copied_and_published(lake: AdvancingLake, app: SparkApp, lease: Lease) -> None:
    with lease.heartbeat():
        lake.copy(app)
        lake.publish(app)


if __name__ == "__main__":
    main()
