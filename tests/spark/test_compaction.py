"""Compaction of tables with position deletes for rows of several files."""

from collections.abc import Callable

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.read.changed_rows import read_rows_changed_since
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.commits import reset_branch
from synapse_lakehouse.iceberg.write.position_deletes import delete_keys
from synapse_lakehouse.iceberg.write.publish import fast_forward_main
from tests.support.incremental_lake import advancing

NAME = "bronze.numbers"
PROPERTIES = "'format-version' = '2', 'write.wap.enabled' = 'true', 'write.delete.mode' = 'merge-on-read'"


def test_compaction_applies_deletes_of_several_files(new_lake: Callable[..., Settings]) -> None:
    with advancing(new_lake()) as lake:
        spark = lake.app().spark
        spark.conf.unset("spark.wap.branch")
        spark.sql("create namespace if not exists bronze")
        spark.sql(f"create table {NAME} (n bigint) tblproperties ({PROPERTIES})")
        for first in (0, 100):
            spark.range(first, first + 100).toDF("n").coalesce(1).writeTo(NAME).append()
        table = load_iceberg_table(spark, NAME)
        before = int(table.currentSnapshot().snapshotId())
        reset_branch(spark, NAME, "changed", before)
        spark.conf.set("spark.wap.branch", "changed")
        rows, changed = delete_keys(spark, NAME, "changed", spark.range(0, 200, 10).toDF("n"))
        assert rows == 20
        spark.conf.unset("spark.wap.branch")

        compacted = compaction.compact_table(spark, NAME, changed, "compacted")
        assert compaction.count_files(spark, NAME, compacted) == compaction.FileCounts(data=1, small=1, deletes=0)
        left = spark.read.option("versionAsOf", compacted).table(NAME)
        assert sorted(row.n for row in left.collect()) == [n for n in range(200) if n % 10]

        # Rows that were only written again have not changed.
        found = open_catalog(lake.settings).load_table(NAME)
        assert input_fingerprint.get_snapshot_property(found.snapshot_by_id(compacted), "built-from") == str(changed)

        def read_changes(since: int) -> list[tuple[int, str]] | None:
            rows = read_rows_changed_since(spark, found, since, compacted)
            return None if rows is None else sorted((row.n, row["_change_type"]) for row in rows.collect())

        assert read_changes(before) == [(n, "DELETE") for n in range(0, 200, 10)]
        assert read_changes(changed) == []
        assert read_changes(42) is None
        first = found.snapshots()[0].snapshot_id
        added = [(n, "INSERT") for n in range(100, 200) if n % 10]
        assert read_changes(first) == sorted([*added, *((n, "DELETE") for n in range(0, 100, 10))])


def test_rows_are_counted_by_files_not_by_totals(new_lake: Callable[..., Settings]) -> None:
    """Iceberg begins totals at zero in the first commit of a branch that this commit makes, as Spark's do."""
    with advancing(new_lake()) as lake:
        spark = lake.app().spark
        spark.sql("create namespace if not exists bronze")
        spark.sql(f"create table {NAME} (n bigint) tblproperties ({PROPERTIES})")
        changes = [
            f"insert into {NAME} select /*+ coalesce(1) */ * from values (1), (2), (3)",
            f"delete from {NAME} where n = 2",
            *(f"insert into {NAME} values ({n})" for n in range(10, 15)),
        ]
        for number, change in enumerate(changes):
            spark.conf.set("spark.wap.branch", f"change-{number}")
            spark.sql(change)
            fast_forward_main(spark, NAME, f"change-{number}", f"tag-{number}")
        head = load_iceberg_table(spark, NAME).currentSnapshot()
        totals = {name: head.summary().get(f"total-{name}") for name in ("records", "data-files", "delete-files")}
        assert totals == {"records": "1", "data-files": "1", "delete-files": "0"}
        assert compaction.count_files(spark, NAME, head.snapshotId()) == compaction.FileCounts(
            data=6, small=6, deletes=1
        )
        compacted = compaction.compact_table(spark, NAME, head.snapshotId(), "compacted")
        assert compaction.count_files(spark, NAME, compacted) == compaction.FileCounts(data=1, small=1, deletes=0)
        left = spark.read.option("versionAsOf", compacted).table(NAME)
        assert sorted(row.n for row in left.collect()) == [1, 3, 10, 11, 12, 13, 14]
