"""IDs are counted in blocks of 64, and each ID once."""

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.streams.sql import ID_COUNTS


def test_ids_at_the_ends_of_blocks_of_several_writers_and_none(settings: Settings) -> None:
    ids = [-(2**63), -65, -64, -64, -1, 0, 63, 64, 127, 128, 2**63 - 1]
    rows: list[tuple[str, str, str, int | None, bool | None]] = [("s", "t", "a", id_, True) for id_ in ids]
    rows += [("s", "t", "b", item, None) for item in (64, 65, None, None)] + [("s", "other", "a", 1, False)]
    spark = create_spark_session("counting", settings)
    columns = "stream string, table_name string, writer string, id bigint, is_received boolean"
    spark.createDataFrame(rows, columns).createOrReplaceTempView("counted_ids")
    actual = {(row.table_name, row.writer): row for row in spark.sql(ID_COUNTS).collect()}
    assert actual.keys() == {("t", None), ("t", "a"), ("t", "b"), ("other", None), ("other", "a")}
    total = actual["t", None]
    assert total.is_total
    assert (total.rows, total.ids, total.null_ids) == (15, len({*ids, 65}), 2)
    assert (total.received, total.timeless) == (11, 4)
    assert (total.first_id, total.last_id) == (-(2**63), 2**63 - 1)
    assert {writer: actual["t", writer].rows for writer in "ab"} == {"a": 11, "b": 4}
    assert (actual["other", None].ids, actual["other", None].received) == (1, 0)
