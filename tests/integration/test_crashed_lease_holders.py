"""After a crash of a lease holder, the next holder takes over its branches."""

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli.lake.branches import drop_branches
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease, LeaseError
from synapse_lakehouse.iceberg.write import branches, tables
from synapse_lakehouse.iceberg.write.publish import publish_branch

SECONDS = 1


def test_the_next_holder_gets_branches_of_crashed_holders(new_lake: Callable[..., Settings]) -> None:
    with closing(open_catalog(new_lake())) as catalog:
        tables.ensure_tables(catalog, catalogue.load_catalogue())
        first, second, third = (Lease(catalog, f"holder {name}", name, SECONDS) for name in ("one", "two", "three"))
        assert first.acquire() == ()
        _write(catalog.load_table("bronze.rooms"), "one")
        _write(catalog.load_table("bronze.users"), "one")
        time.sleep(SECONDS)

        assert second.acquire() == ("one",)
        assert second.acquire() == ("one",), "the run crashed during the takeover and tries again"
        rooms = catalog.load_table("bronze.rooms")
        rooms.manage_snapshots().create_branch(rooms.refs()["one"].snapshot_id, "two").commit()
        time.sleep(SECONDS)

        assert third.acquire() == ("one", "two")
        third.renew()
        third.release()
        assert third.acquire() == ("one", "two"), "the lease was released before the branches were settled"
        branches.resume_branch(catalog, ("one", "two"), "three")
        third.settle()
        refs_by_table = {name: set(catalog.load_table(f"bronze.{name}").refs()) for name in ("rooms", "users")}
        assert refs_by_table == {"rooms": {"main", "three"}, "users": {"main", "three"}}
        third.release()
        assert first.acquire() == ()


def test_the_next_holder_resumes_unfinished_work(new_lake: Callable[..., Settings]) -> None:
    with closing(open_catalog(new_lake())) as catalog:
        tables.ensure_tables(catalog, catalogue.load_catalogue())
        first, second = (Lease(catalog, f"holder {name}", name, 60) for name in ("one", "two"))
        assert first.acquire() == ()
        _write(catalog.load_table("bronze.rooms"), "one")
        _write(catalog.load_table("silver.state_positions"), "one")
        first.release(is_undone=True)

        assert first.acquire() == ("one",)
        branches.resume_branch(catalog, ("one",), "one")
        assert _refs(catalog) == ({"main", "one"}, {"main"})
        first.settle()
        first.release(is_undone=True)

        assert second.acquire() == ("one",)
        branches.resume_branch(catalog, ("one",), "two")
        assert _refs(catalog) == ({"main", "two"}, {"main"})
        second.settle()
        second.release()
        assert first.acquire() == ()


def test_dropping_a_branch_keeps_other_unfinished_work(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake()
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_tables(catalog, catalogue.load_catalogue())
        lease = Lease(catalog, "holder one", "one", 60)
        lease.acquire()
        _write(catalog.load_table("bronze.rooms"), "one")
        _write(catalog.load_table("bronze.users"), "two")
        lease.release(is_undone=True)
        assert list(drop_branches(settings, ["two"])) == [("two", 1)]
        assert set(catalog.load_table("bronze.rooms").refs()) == {"main", "one"}
        assert lease.acquire() == ("one",)


def _refs(catalog: Catalog) -> tuple[set[str], ...]:
    return tuple(set(catalog.load_table(name).refs()) for name in ("bronze.rooms", "silver.state_positions"))


def test_a_run_that_lost_its_lease_publishes_nothing(new_lake: Callable[..., Settings]) -> None:
    run = Run("slow", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    passed = {"suite": "", "expectation": "", "subject": "", "severity": "fail", "success": True, "observed": ""}
    with closing(open_catalog(new_lake())) as catalog:
        tables.ensure_tables(catalog, catalogue.load_catalogue())
        checks = [passed | {"stage": stage, "checked_at": datetime.now(UTC)} for stage in ("bronze", "gold")]
        store.append_audit_rows(catalog, "audit.checks", checks, run)
        slow, quick = (Lease(catalog, holder, branch, SECONDS) for holder, branch in (("slow", run.branch), ("q", "q")))
        slow.acquire()
        time.sleep(SECONDS)
        assert quick.acquire() == (run.branch,)
        with pytest.raises(LeaseError, match=r"\bq\b"):
            publish_branch(cast("SparkSession", None), catalog, run, "it", slow.renew)
        quick.release()
        with pytest.raises(LeaseError, match="open_run"):
            slow.renew()
        assert store.read_releases(catalog) == []


def _write(table: Table, branch: str) -> None:
    table.append(pa.Table.from_pylist([{}], schema=table.schema().as_arrow()))
    head = table.current_snapshot()
    assert head
    table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
