"""Visibility on the sample equals every answer of a real Synapse on the same database.

And what a state event replaced is known where that Synapse said so.
"""

from sample import visibility_answers
from synapse_lakehouse.cli.events.visibility import set_retention_time
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import Published
from tests.visibility import holding, record


def test_every_answer_on_the_sample_is_synapse_s(published: Published) -> None:
    recorded = visibility_answers.load(record.SAMPLE)
    with duckdb_reader.open_duckdb(published.settings) as connection:
        holding.bind_release(connection, published.settings, duckdb_reader.get_release(connection, published.settings))
        set_retention_time(connection, recorded.about["as_of"])
        assert visibility_answers.differences(connection, recorded) == []


def test_replaced_events_are_recorded_except_for_outliers(published: Published) -> None:
    with duckdb_reader.open_duckdb(published.settings) as connection:
        names = ["silver.event_visibility_inputs", "bronze.ex_outlier_stream"]
        duckdb_reader.create_views(
            connection, published.settings, duckdb_reader.get_release(connection, published.settings), names
        )
        # Synapse writes down what an event replaces when it gets its place in the room, but not of one that was kept
        # outside before.
        rows_by_replaced = connection.execute("""
            select replaced_is_known, replaces_state is not null, count(*)
            from silver.event_visibility_inputs anti join bronze.ex_outlier_stream using (event_id)
            where is_state and not outlier group by all
        """).fetchall()
        unknown = connection.execute("""
            select count(*) from silver.event_visibility_inputs semi join bronze.ex_outlier_stream using (event_id)
            where not replaced_is_known
        """).fetchone()
    counted = {(is_known, replaces): rows for is_known, replaces, rows in rows_by_replaced}
    assert counted.keys() == {(True, True), (True, False)}
    assert min(counted.values()) > 500
    assert unknown
    assert unknown[0] > 0
