"""Visibility on the sample equals all answers of a real Synapse on the same database.

The lake contains the event that a state event replaced if Synapse recorded it.
"""

from sample import visibility_answers
from synapse_lakehouse.cli.events.visibility import set_retention_time
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import PublishedLake
from tests.visibility import holding, record


def test_visibility_of_the_sample_equals_synapse(published: PublishedLake) -> None:
    recorded = visibility_answers.load(record.SAMPLE)
    with duckdb_reader.open_duckdb(published.settings) as connection:
        holding.bind_release(connection, published.settings, duckdb_reader.get_release(connection, published.settings))
        set_retention_time(connection, recorded.about["as_of"])
        assert visibility_answers.differences(connection, recorded) == []


def test_replaced_events_are_recorded_except_for_outliers(published: PublishedLake) -> None:
    with duckdb_reader.open_duckdb(published.settings) as connection:
        names = ["silver.event_visibility_inputs", "bronze.ex_outlier_stream"]
        duckdb_reader.create_views(
            connection, published.settings, duckdb_reader.get_release(connection, published.settings), names
        )
        # Synapse records the replaced event when it persists a state event, but not for a former outlier.
        rows_by_replaced = connection.execute("""
            select replaced_is_known, replaces_state is not null, count(*)
            from silver.event_visibility_inputs anti join bronze.ex_outlier_stream using (event_id)
            where is_state and not outlier group by all
        """).fetchall()
        unknown = connection.execute("""
            select count(*) from silver.event_visibility_inputs semi join bronze.ex_outlier_stream using (event_id)
            where not replaced_is_known
        """).fetchone()
    counts = {(is_known, replaces): rows for is_known, replaces, rows in rows_by_replaced}
    assert counts.keys() == {(True, True), (True, False)}
    assert min(counts.values()) > 500
    assert unknown
    assert unknown[0] > 0
