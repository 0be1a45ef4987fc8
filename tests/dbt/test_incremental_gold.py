"""All tables of silver and gold have the same rows after an incremental build as after a full refresh."""

import random
from collections import Counter

import pytest

from tests.conftest import VisibilityLake
from tests.support.branch_builds import (
    AFFECTED_KEYS,
    FULL,
    PART,
    STATE_TABLES,
    WHOLE,
    branched_tables,
    build_models,
    copy_branch,
    publish,
)
from tests.support.bronze_changes import BronzeChanges
from tests.support.dbt import DbtSession

STORED = ("path:models/silver", "path:models/gold", "path:models/integrity", "--exclude", "config.materialized:view")


@pytest.mark.heavy
def test_an_increment_equals_a_full_refresh(visibility_lake: VisibilityLake) -> None:
    session, history = visibility_lake.session, BronzeChanges(visibility_lake, random.Random("gold"))
    bronze, models = _list_tables(session, "bronze"), [*_list_tables(session, "silver"), *_list_tables(session, "gold")]
    with branched_tables(visibility_lake, {*bronze, *models}):
        build_models(visibility_lake, PART, STORED)
        publish(session, {*bronze, *models})
        for change in (
            history.add_events, history.delete_events, history.reject_room_settings, history.add_redactions,
            history.add_positions_of_outliers, history.erase_users, history.change_retention,
        ):  # fmt: skip
            change()
        session.resolve(PART, FULL)
        for table in (*bronze, *STATE_TABLES):
            copy_branch(session, table, PART, WHOLE)
        build_models(visibility_lake, PART, STORED, is_partial=True)
        build_models(visibility_lake, WHOLE, STORED)
        row_counts = (
            session.rows_of_last_commit("silver.event_visibility_inputs", PART),
            session.rows_of_last_commit("silver.event_visibility_inputs", WHOLE),
        )
        assert row_counts[0] < row_counts[1] / 2
        # A full build does not search for affected rows.
        compared_models = [model for model in models if model.partition(".")[2] not in AFFECTED_KEYS]
        assert len(compared_models) > 15
        for model in compared_models:
            partial_rows, full_rows = (
                Counter(map(repr, session.sql(f"select * from {model}", branch))) for branch in (PART, WHOLE)
            )
            assert partial_rows - full_rows == full_rows - partial_rows == Counter(), model


def _list_tables(session: DbtSession, schema: str) -> list[str]:
    return [f"{schema}.{row['tableName']}" for row in session.sql(f"show tables in {schema}")]
