"""Every table that follows from what was made anew in part is the one that follows from what was made whole."""

import random
from collections import Counter

import pytest

from tests.conftest import HarshLake
from tests.dbt.test_found import NEVER, PART, STATE, WHOLE, Happening, beginning, branch, run
from tests.support.dbt import DbtSession

EVERYTHING = ("path:models/silver", "path:models/gold", "--exclude", "config.materialized:view")


@pytest.mark.heavy
def test_silver_and_gold_after_an_increment_are_those_of_a_full_refresh(harsh: HarshLake) -> None:
    session, history = harsh.session, Happening(harsh, random.Random("gold"))
    bronze, models = _tables(session, "bronze"), [*_tables(session, "silver"), *_tables(session, "gold")]
    with beginning(harsh, {*bronze, *models}):
        run(harsh, PART, NEVER, EVERYTHING)
        for happens in (
            history.events_come, history.events_go, history.settings_are_rejected, history.redactions_come,
            history.outliers_get_a_place, history.people_are_erased, history.rooms_keep_messages_otherwise,
        ):  # fmt: skip
            happens()
        session.resolve(PART, NEVER)
        for table in (*bronze, *STATE):
            branch(session, table, PART, WHOLE)
        run(harsh, PART, 0, EVERYTHING)
        run(harsh, WHOLE, NEVER, EVERYTHING)
        few = (
            session.written("silver.event_visibility_inputs", PART),
            session.written("silver.event_visibility_inputs", WHOLE),
        )
        assert few[0] < few[1] / 2
        assert len(models) > 15
        for model in models:
            in_part, whole = (Counter(map(repr, session.sql(f"select * from {model}", on))) for on in (PART, WHOLE))
            assert in_part - whole == whole - in_part == Counter(), model


def _tables(session: DbtSession, schema: str) -> list[str]:
    return [f"{schema}.{row['tableName']}" for row in session.sql(f"show tables in {schema}")]
