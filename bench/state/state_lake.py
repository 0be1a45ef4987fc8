"""Bronze tables with state groups that Spark generates and resolves, as the DAG does.

Every second group belongs to one large room, the other groups to many small rooms. A chain has 100 groups: a full
state, then 99 groups with one change each. The rooms begin their chains at different steps, as on a homeserver.
Otherwise a few new groups would begin a chain in every room, and the share of new rows would exceed their own.
"""

from typing import Final

from bench import spark_runs
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.commits import ensure_branch
from synapse_lakehouse.iceberg.write.publish import fast_forward_main
from synapse_lakehouse.room_state.resolve import resolve_rooms
from synapse_lakehouse.spark_app import SparkApp

_CHAIN: Final = 100
_MEMBERS: Final = 1_900
"""Entries of a full state, so that a group has 20 rows on average."""
_GROUPS_PER_ROOM: Final = 5_000
_BRONZE: Final = ("state_groups", "state_group_edges", "state_groups_state")
_SILVER: Final = ("state_positions", "state_intervals", "state_faults", "state_changes")


class StateLake:
    """Add state groups on a run's branch, resolve them, and publish the tables."""

    def __init__(self, settings: Settings) -> None:
        spark_runs.set_driver_memory(settings)
        self._settings, self._runs, self._groups, self._rooms = settings, 0, 0, 0
        self._app = self._new_app()
        tables.ensure_tables(self._app.catalog, catalogue.load_catalogue())

    def add_groups(self, groups: int) -> int:
        """Begin a run with ``groups`` new groups, and return the number of rows of ``state_groups_state``."""
        self._app = self._new_app()
        first, self._groups = self._groups, self._groups + groups
        self._rooms = self._rooms or max(groups // 2 // _GROUPS_PER_ROOM, 1)
        spark, rooms = self._app.spark, self._rooms
        for name in _BRONZE:
            ensure_branch(spark, f"bronze.{name}", self._app.run.branch)
        spark.sql(f"""
            select *, step = 0 or (step + room) % {_CHAIN} = 0 as is_complete
            from (
                select id, if(id % 2 = 0, 0, id div 2 % {rooms}) as room,
                    if(id % 2 = 0, '!large', concat('!', id div 2 % {rooms})) as room_id,
                    if(id % 2 = 0, id div 2, id div 2 div {rooms}) as step, if(id % 2 = 0, 2, 2 * {rooms}) as distance
                from range({first}, {self._groups})
            )
        """).createOrReplaceTempView("new_groups")  # noqa: S608 - of numbers
        spark.sql("insert into bronze.state_groups (id, room_id) select id, room_id from new_groups")
        spark.sql("""
            insert into bronze.state_group_edges (state_group, prev_state_group)
            select id, id - distance from new_groups where not is_complete
        """)
        spark.sql(f"""
            insert into bronze.state_groups_state (state_group, type, state_key, event_id)
            select id, 'm.room.member', concat('@user', member, ':bench.example'),
                concat('$', md5(concat(room_id, step - pmod(step - member, {_MEMBERS}))), '0123456789')
            from (
                select *, explode(
                    if(is_complete, sequence(0, {_MEMBERS} - 1), array(int(step % {_MEMBERS})))
                ) as member
                from new_groups
            )
        """)  # noqa: S608 - of numbers
        return int(spark.table("bronze.state_groups_state").count())

    def resolve(self) -> None:
        """Resolve the state on the run's branch."""
        resolve_rooms(self._app.spark, self._app.catalog, self._app.run.branch, minimum_rows=0)

    def count_written_bytes(self) -> int:
        """Return the bytes of the data and delete files that the run added to the tables of resolved state."""
        written = 0
        for name in _SILVER:
            table = load_iceberg_table(self._app.spark, f"silver.{name}")
            table.refresh()
            main = table.currentSnapshot().snapshotId() if table.currentSnapshot() else None
            snapshot = table.snapshot(self._app.run.branch)
            while snapshot is not None and snapshot.snapshotId() != main:
                written += int(snapshot.summary().get("added-files-size") or 0)
                snapshot = table.snapshot(snapshot.parentId()) if snapshot.parentId() else None
        return written

    def publish(self) -> None:
        """Fast-forward the tables to the run's branch."""
        for name in (*(f"bronze.{name}" for name in _BRONZE), *(f"silver.{name}" for name in _SILVER)):
            fast_forward_main(self._app.spark, name, self._app.run.branch, f"release-{self._runs}")

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _new_app(self) -> SparkApp:
        self._runs += 1
        return spark_runs.new_app(self._settings, self._runs)
