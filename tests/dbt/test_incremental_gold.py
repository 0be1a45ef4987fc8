"""All of silver and gold has the same rows after an increment as after a full refresh."""

import random
from collections import Counter

import pytest

from tests.conftest import HarshLake
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
def test_an_increment_equals_a_full_refresh(harsh: HarshLake) -> None:
    session, history = harsh.session, BronzeChanges(harsh, random.Random("gold"))
    bronze, models = _tables(session, "bronze"), [*_tables(session, "silver"), *_tables(session, "gold")]
    with branched_tables(harsh, {*bronze, *models}):
        build_models(harsh, PART, STORED)
        publish(session, {*bronze, *models})
        for happens in (
            history.events_come, history.events_go, history.settings_are_rejected, history.redactions_come,
            history.outliers_get_a_place, history.people_are_erased, history.rooms_keep_messages_otherwise,
        ):  # fmt: skip
            happens()
        session.resolve(PART, FULL)
        for table in (*bronze, *STATE_TABLES):
            copy_branch(session, table, PART, WHOLE)
        build_models(harsh, PART, STORED, in_part=True)
        build_models(harsh, WHOLE, STORED)
        few = (
            session.rows_of_last_commit("silver.event_visibility_inputs", PART),
            session.rows_of_last_commit("silver.event_visibility_inputs", WHOLE),
        )
        assert few[0] < few[1] / 2
        # A full build does not search for affected rows.
        compared = [model for model in models if model.partition(".")[2] not in AFFECTED_KEYS]
        assert len(compared) > 15
        for model in compared:
            in_part, full = (Counter(map(repr, session.sql(f"select * from {model}", on))) for on in (PART, WHOLE))
            assert in_part - full == full - in_part == Counter(), model


def _tables(session: DbtSession, schema: str) -> list[str]:
    return [f"{schema}.{row['tableName']}" for row in session.sql(f"show tables in {schema}")]
