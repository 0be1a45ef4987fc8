"""Compaction rewrites files with old deletes and small files, and leaves their rows unchanged."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.read.changed_rows import read_rows_changed_since
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.commits import set_or_remove_branch
from synapse_lakehouse.iceberg.write.position_deletes import delete_keys
from synapse_lakehouse.iceberg.write.publish import fast_forward_main
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import lake_maker
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake

NAME = "bronze.numbers"
PROPERTIES = "'format-version' = '2', 'write.wap.enabled' = 'true', 'write.delete.mode' = 'merge-on-read'"


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    with (
        lake_maker(server, settings, tmp_path_factory.mktemp("compacted")) as make,
        open_incremental_lake(make()) as lake,
    ):
        lake.app().spark.sql("create namespace if not exists bronze")
        yield lake


@pytest.fixture
def table(lake: IncrementalLake) -> Iterator[SparkSession]:
    """Yield a Spark session with an empty table."""
    spark = lake.app().spark
    spark.conf.unset("spark.wap.branch")
    spark.sql(f"create table {NAME} (n bigint, s string) tblproperties ({PROPERTIES})")
    yield spark
    spark.conf.unset("spark.wap.branch")
    spark.sql(f"drop table {NAME} purge")


def add_file(spark: SparkSession, first: int, rows: int = 100) -> None:
    frame = spark.range(first, first + rows).selectExpr("id as n", "sha2(string(id), 256) as s")
    frame.coalesce(1).writeTo(NAME).append()


def delete_rows(spark: SparkSession, condition: str) -> int:
    spark.sql(f"delete from {NAME} where {condition}")
    return current_snapshot_id(spark)


def current_snapshot_id(spark: SparkSession) -> int:
    return int(load_iceberg_table(spark, NAME).currentSnapshot().snapshotId())


def files_by_thousand(spark: SparkSession, snapshot_id: int) -> dict[int, str]:
    """Return the data file of each thousand of ``n``."""
    rows = spark.read.option("versionAsOf", snapshot_id).table(NAME).selectExpr("n div 1000 as k", "_file").distinct()
    return {row.k: row._file for row in rows.collect()}


def count_files(spark: SparkSession, snapshot_id: int) -> tuple[int, int]:
    """Return the numbers of data files and of delete files."""
    files = spark.read.option("versionAsOf", snapshot_id).table(f"{NAME}.files")
    return files.where("content = 0").count(), files.where("content <> 0").count()


def read_rows(spark: SparkSession, snapshot_id: int) -> list[tuple[int, str]]:
    return sorted((row.n, row.s) for row in spark.read.option("versionAsOf", snapshot_id).table(NAME).collect())


def test_files_are_rewritten_by_their_share_of_deletes(table: SparkSession) -> None:
    deleted_counts = {1: 0, 2: 1, 3: 29, 4: 30, 5: 99}
    for k in deleted_counts:
        add_file(table, k * 1000)
    assert count_files(table, current_snapshot_id(table)) == (5, 0)
    head = delete_rows(
        table, " or ".join(f"n between {k * 1000} and {k * 1000 + n - 1}" for k, n in deleted_counts.items())
    )
    assert count_files(table, head) == (5, 4)
    options = compaction.plan_compaction(table, NAME, head, None)
    assert options is not None
    compacted_id = compaction.compact_table(table, NAME, head, "compacted", options | {"min-file-size-bytes": "0"})
    before, after = files_by_thousand(table, head), files_by_thousand(table, compacted_id)
    assert {k for k in deleted_counts if before[k] == after[k]} == {1, 2, 3}
    assert count_files(table, compacted_id) == (4, 2)
    assert read_rows(table, head) == read_rows(table, compacted_id)
    assert compaction.plan_compaction(table, NAME, compacted_id, head) is not None
    assert compaction.plan_compaction(table, NAME, compacted_id, None) is None


def test_one_deleted_row_of_content_is_rewritten(table: SparkSession) -> None:
    for k in range(3):
        add_file(table, k * 1000)
    head = delete_rows(table, "n = 7")
    assert compaction.plan_compaction(table, NAME, head, None) is None
    table.sql(f"alter table {NAME} set tblproperties ('write.metadata.metrics.column.s' = 'none')")
    options = compaction.plan_compaction(table, NAME, head, None)
    assert options is not None
    compacted_id = compaction.compact_table(table, NAME, head, "compacted", options)
    before, after = files_by_thousand(table, head), files_by_thousand(table, compacted_id)
    assert {k for k in before if before[k] == after[k]} == {1, 2}
    assert (
        table.read.parquet(after[0]).where("n = 7").count() == 0 < table.read.parquet(before[0]).where("n = 7").count()
    )
    assert read_rows(table, head) == read_rows(table, compacted_id)
    assert compaction.plan_compaction(table, NAME, compacted_id, compacted_id) is None


def test_old_deletes_are_rewritten(table: SparkSession) -> None:
    for k in range(2):
        add_file(table, k * 1000)
    before = current_snapshot_id(table)
    first = delete_rows(table, "n = 7")
    # Iceberg replaces the delete file, but the row was deleted before.
    second = delete_rows(table, "n = 8")
    assert compaction.plan_compaction(table, NAME, second, before) is None
    options = compaction.plan_compaction(table, NAME, second, first)
    assert options is not None
    compacted_id = compaction.compact_table(table, NAME, second, "compacted", options)
    fast_forward_main(table, NAME, "compacted", "tag")
    # The file of the earlier delete is gone, so the next compaction is due when the new delete is old.
    third = delete_rows(table, "n = 9")
    assert compaction.plan_compaction(table, NAME, third, first) is None
    assert compaction.plan_compaction(table, NAME, third, compacted_id) is None
    assert compaction.plan_compaction(table, NAME, third, third) is not None


def test_small_files_are_merged_with_files_of_their_size(table: SparkSession) -> None:
    add_file(table, 100_000, 50_000)
    for k in range(4):
        add_file(table, k * 1000)
    head = current_snapshot_id(table)
    assert compaction.plan_compaction(table, NAME, head, head) is None
    add_file(table, 4000)
    head = current_snapshot_id(table)
    options = compaction.plan_compaction(table, NAME, head, head)
    assert options is not None
    compacted_id = compaction.compact_table(table, NAME, head, "compacted", options)
    before, after = files_by_thousand(table, head), files_by_thousand(table, compacted_id)
    assert (before[100], len({after[k] for k in range(5)})) == (after[100], 1)
    assert read_rows(table, head) == read_rows(table, compacted_id)


def test_rows_of_changed_files_are_compared(table: SparkSession) -> None:
    for k in range(3):
        add_file(table, k * 1000)
    no_delete = current_snapshot_id(table)
    one_delete = delete_rows(table, "n = 7")
    two_deletes = delete_rows(table, "n = 8")
    iceberg = load_iceberg_table(table, NAME)
    assert compaction.hash_changed_files(table, iceberg, two_deletes, two_deletes) == ((0, 0), (0, 0))
    # The hashes show a row that returns and a row that disappears.
    for before, after, rows in [(no_delete, one_delete, (100, 99)), (two_deletes, one_delete, (98, 99))]:
        hashes = compaction.hash_changed_files(table, iceberg, before, after)
        assert tuple(number for number, _ in hashes) == rows
        assert len({content for _, content in hashes}) == 2


def test_compaction_applies_deletes_of_several_files(lake: IncrementalLake, table: SparkSession) -> None:
    spark = table
    for first in (0, 100):
        add_file(spark, first)
    before = current_snapshot_id(spark)
    set_or_remove_branch(spark, NAME, "changed", before)
    spark.conf.set("spark.wap.branch", "changed")
    rows, changed = delete_keys(spark, NAME, "changed", spark.range(0, 200, 10).toDF("n"))
    assert rows == 20
    spark.conf.unset("spark.wap.branch")

    assert compaction.plan_compaction(spark, NAME, changed, before) is None
    options = compaction.plan_compaction(spark, NAME, changed, changed)
    assert options is not None
    compacted_id = compaction.compact_table(spark, NAME, changed, "compacted", options)
    assert count_files(spark, compacted_id) == (1, 0)
    assert [n for n, _ in read_rows(spark, compacted_id)] == [n for n in range(200) if n % 10]

    # Rewritten rows do not count as changed.
    table_ = open_catalog(lake.settings).load_table(NAME)
    assert input_fingerprint.get_snapshot_property(table_.snapshot_by_id(compacted_id), "built-from") == str(changed)

    def read_changes(since: int) -> list[tuple[int, str]] | None:
        rows = read_rows_changed_since(spark, table_, since, compacted_id)
        return None if rows is None else sorted((row.n, row["_change_type"]) for row in rows.collect())

    assert read_changes(before) == [(n, "DELETE") for n in range(0, 200, 10)]
    assert read_changes(changed) == []
    assert read_changes(42) is None
    first = table_.snapshots()[0].snapshot_id
    added_rows = [(n, "INSERT") for n in range(100, 200) if n % 10]
    assert read_changes(first) == sorted([*added_rows, *((n, "DELETE") for n in range(0, 100, 10))])


def test_rows_are_counted_by_files_not_by_totals(table: SparkSession) -> None:
    """Iceberg starts the totals at zero in a commit that creates its branch, as Spark's commits do."""
    changes = [
        f"insert into {NAME} select /*+ coalesce(1) */ *, '' from values (1), (2), (3)",
        f"delete from {NAME} where n = 2",
        *(f"insert into {NAME} values ({n}, '')" for n in range(10, 15)),
    ]
    for number, change in enumerate(changes):
        table.conf.set("spark.wap.branch", f"change-{number}")
        table.sql(change)
        fast_forward_main(table, NAME, f"change-{number}", f"tag-{number}")
    head = load_iceberg_table(table, NAME).currentSnapshot()
    totals = {name: head.summary().get(f"total-{name}") for name in ("records", "data-files", "delete-files")}
    assert totals == {"records": "1", "data-files": "1", "delete-files": "0"}
    assert count_files(table, head.snapshotId()) == (6, 1)
    options = compaction.plan_compaction(table, NAME, head.snapshotId(), None)
    assert options is not None
    compacted_id = compaction.compact_table(table, NAME, head.snapshotId(), "compacted", options)
    assert count_files(table, compacted_id) == (1, 0)
    assert [n for n, _ in read_rows(table, compacted_id)] == [1, 3, 10, 11, 12, 13, 14]
