"""Compaction of what increments make of a table: deletes that mark rows of several files at once."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import functions as f

from synapse_lakehouse.lake import compaction, remaking
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.lake.changes import changed_keys, newer_rows
from synapse_lakehouse.lake.files import prepare_change, start_branch, write_position_deletes
from synapse_lakehouse.lake.session import iceberg_table
from synapse_lakehouse.settings import Settings
from tests.advancing import advancing

NAME = "bronze.numbers"


def test_deletes_that_mark_several_files_are_applied_and_gone(new_lake: Callable[..., Settings]) -> None:
    with advancing(new_lake()) as lake:
        spark = lake.app().spark
        spark.conf.unset("spark.wap.branch")
        spark.sql("create namespace if not exists bronze")
        spark.sql(f"create table {NAME} (n bigint) tblproperties ('format-version' = '2')")
        for first in (0, 100):
            spark.range(first, first + 100).toDF("n").coalesce(1).writeTo(NAME).append()
        table = iceberg_table(spark, NAME)
        before = int(table.currentSnapshot().snapshotId())
        start_branch(spark, NAME, "changed", before)
        marked = spark.table(NAME).where("n % 10 = 0").groupBy("_file").agg(f.collect_list("_pos").alias("rows"))
        places = {row["_file"]: [pa.array(row.rows[::-1])] for row in marked.collect()}
        deletes = write_position_deletes(places, f"{table.location()}/data", {})
        changed = prepare_change(spark, NAME, "changed", [], deletes, {}).commit().snapshot_id

        compacted = compaction.compact(spark, NAME, changed, "compacted")
        assert compaction.files(spark, NAME, compacted) == compaction.Files(data=1, small=1, deletes=0)
        left = spark.read.option("versionAsOf", compacted).table(NAME)
        assert sorted(row.n for row in left.collect()) == [n for n in range(200) if n % 10]

        # Who asks what changed is not told of files that were only written anew, nor need make anything of it anew.
        found = pyiceberg_catalog(lake.settings).load_table(NAME)
        assert remaking.said(found.snapshot_by_id(compacted), "made-of") == str(changed)
        keys = changed_keys(found, before, compacted, ["n"])
        assert keys is not None
        assert sorted(keys["n"].to_pylist()) == list(range(0, 200, 10))
        assert changed_keys(found, changed, compacted, ["n"]) == keys.slice(0, 0)
        assert changed_keys(found, 42, compacted, ["n"]) is None

        # Rows of a newer file are those that are left of it.
        first = found.snapshots()[0].snapshot_id
        assert sorted(newer_rows(found, first, changed)["n"].to_pylist()) == [n for n in range(100, 200) if n % 10]
        assert len(newer_rows(found, before, changed)) == 0
