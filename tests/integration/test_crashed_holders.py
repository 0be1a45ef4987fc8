"""What holders of the lake lease leave when they crash, one after the other, while they take over from each other."""

import time
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
from pyiceberg.table import Table

from synapse_lakehouse import catalogue
from synapse_lakehouse.lake import branches, tables
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.lake.lease import Lease
from synapse_lakehouse.settings import Settings

SECONDS = 1


def test_branches_of_crashed_holders_are_handed_on_until_somebody_has_disposed_of_them(
    new_lake: Callable[..., Settings],
) -> None:
    with closing(pyiceberg_catalog(new_lake())) as catalog:
        tables.ensure(catalog, catalogue.load())
        first, second, third = (Lease(catalog, f"holder {name}", name, SECONDS) for name in ("one", "two", "three"))
        assert first.acquire() == ()
        _write(catalog.load_table("bronze.rooms"), "one")
        _write(catalog.load_table("bronze.users"), "one")
        time.sleep(SECONDS)

        assert second.acquire() == ("one",)
        assert second.acquire() == ("one",), "a second attempt of a run that crashed while it took over"
        rooms = catalog.load_table("bronze.rooms")
        rooms.manage_snapshots().create_branch(rooms.refs()["one"].snapshot_id, "two").commit()
        time.sleep(SECONDS)

        assert third.acquire() == ("one", "two")
        third.renew()
        third.release()
        assert third.acquire(60) == ("one", "two"), "given back without having disposed of them"
        branches.take_over(catalog, ("one", "two"), "three")
        third.settle()
        held = {name: set(catalog.load_table(f"bronze.{name}").refs()) for name in ("rooms", "users")}
        assert held == {"rooms": {"main", "three"}, "users": {"main", "three"}}
        third.release()
        assert first.acquire() == ()


def _write(table: Table, branch: str) -> None:
    table.append(pa.Table.from_pylist([{}], schema=table.schema().as_arrow()))
    head = table.current_snapshot()
    assert head
    table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
