"""A process that copies and publishes, and that a test may kill.

Each line of its input is the number of a run. It prints ``ready`` when its JVM has started, and ``done`` after each
run. It retries a failed run once, as Airflow does. A killed process leaves its lease, branch and files to the next
process.
"""

import sys
import traceback

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.iceberg.write import branches, tables
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.spark_app import SparkApp
from tests.support.incremental_lake import IncrementalLake
from tests.support.runs import acquire_when_free

WAIT_SECONDS = 120
NAMES = (
    "events", "event_json", "event_edges", "state_groups_state", "state_groups", "room_memberships", "rooms",
    "rejections", "receipts_linearized", "erased_users",
)  # fmt: skip


def few_tables() -> Catalogue:
    """Return a catalogue of the large tables and some small ones: a run is quick and has several phases."""
    full = catalogue.load_catalogue()
    return full.model_copy(update={"tables": tuple(map(full.table, NAMES))})


def main() -> None:
    """Execute runs until the input ends."""
    # Small chunks, so that several Python workers read a table and a kill hits between chunks.
    patch, few = pytest.MonkeyPatch(), few_tables()
    patch.setattr(page_ranges, "PAGES_PER_CHUNK", 64)
    patch.setattr(page_ranges, "SMALL_TABLE_PAGES", 0)
    patch.setattr(catalogue, "load_catalogue", lambda: few)
    lake = IncrementalLake(Settings(_env_file=None))
    lake.app().spark.range(1).count()
    print("ready", flush=True)
    for line in sys.stdin:
        lake.runs = int(line) - 1
        _run(lake, lake.app())
        print("done", flush=True)


def _run(lake: IncrementalLake, app: SparkApp) -> None:
    """Acquire the lease, copy, publish and release the lease, as the DAG's tasks do."""
    tables.ensure_tables(app.catalog, catalogue.load_catalogue())
    lease = Lease(app.catalog, app.run.run_id, app.run.branch, lake.settings.lakehouse_lease_seconds)
    crashed = acquire_when_free(lease, WAIT_SECONDS)
    if app.run.branch not in crashed:
        branches.drop_branch(app.catalog, app.run.branch)
    if latest := store.read_latest_release(app.catalog):
        branches.restore_release(app.catalog, latest.tables)
    if crashed:
        branches.resume_branch(app.catalog, crashed, app.run.branch)
        lease.settle()
    try:
        _copy_and_publish(lake, app, lease)
    except Exception:  # noqa: BLE001 - a kill causes many kinds of errors
        traceback.print_exc()
        _copy_and_publish(lake, app, lease)
    lease.release()


def _copy_and_publish(lake: IncrementalLake, app: SparkApp, lease: Lease) -> None:
    with lease.heartbeat():
        lake.copy(app)
        lake.publish(app)


if __name__ == "__main__":
    main()
