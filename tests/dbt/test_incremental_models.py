"""Incremental models contain the same rows as a full build, whatever changed in bronze."""

import json
import random

import pytest

from tests.conftest import HarshLake
from tests.support.branch_builds import (
    BRONZE_TABLES,
    MODELS,
    NEVER_IN_PART,
    PART,
    STATE_TABLES,
    WHOLE,
    branched_tables,
    build_models,
    build_rows,
    copy_branch,
)
from tests.support.bronze_changes import CHANGES, BronzeChanges


def _check_builds_in_part(lake: HarshLake, batches: list[list[str]], seed: str) -> None:
    history = BronzeChanges(lake, random.Random(seed))
    with branched_tables(lake):
        everything = len(build_rows(lake, PART, NEVER_IN_PART)["silver.event_visibility_inputs"])
        shares = []
        for changes in batches:
            for name in changes:
                getattr(history, name)()
            lake.session.resolve(PART, NEVER_IN_PART)
            for table in (*BRONZE_TABLES, *STATE_TABLES):
                copy_branch(lake.session, table, PART, WHOLE)
            in_part, whole = build_rows(lake, PART, 0), build_rows(lake, WHOLE, NEVER_IN_PART)
            shares.append(lake.session.written("silver.event_visibility_inputs", PART) / everything)
            for model in MODELS:
                different = set(map(repr, in_part[model])) ^ set(map(repr, whole[model]))
                assert different == set(), (changes, model)
                assert len(in_part[model]) == len(whole[model]), (changes, model)
            print(changes, f"{shares[-1]:.1%}")
        assert sorted(shares)[len(shares) // 2] < 0.2


def test_duckdb_in_part_equals_spark_as_a_whole(harsh: HarshLake) -> None:
    history, made = BronzeChanges(harsh, random.Random("few")), list(MODELS)[1:]
    models = [name.partition(".")[2] for name in made]
    with branched_tables(harsh):
        history.people_were_somewhere()
        history.outliers_flip()
        history.redactions_go()
        for table in (*BRONZE_TABLES, *STATE_TABLES, *MODELS):
            copy_branch(harsh.session, table, PART, WHOLE)
        in_part, whole = (
            build_models(harsh, on, worth_it, models) for on, worth_it in ((PART, 0), (WHOLE, NEVER_IN_PART))
        )
        assert sum("rows are concerned" in line for line in in_part["told"]) == 2
        assert sum("rows to read" in line for line in in_part["told"]) == 1
        assert not whole["told"]
        for model in made:
            rows = [harsh.session.sql(f"select * from {model} order by {MODELS[model]}", on) for on in (PART, WHOLE)]
            assert rows[0] == rows[1]
        assert harsh.session.written("gold.visibility_intervals", PART) == len(rows[0])
        # Without a change nothing is searched.
        assert not build_models(harsh, PART, 0, models)["told"]


def test_a_table_that_may_lack_rows_is_rebuilt(harsh: HarshLake) -> None:
    """As after a run that did not know whether it had deleted rows."""
    with branched_tables(harsh, [*BRONZE_TABLES, *MODELS]):
        told = json.dumps({"server_name": harsh.settings.synapse_server_name, "read_from": {"redactions": "unknown"}})
        written = []
        for found in ("anew", None, "anew"):
            if found:
                harsh.session.sql(f"set synapse_lakehouse.found.redactions = {found}")
            done = harsh.session.dbt("run", "--select", "redactions", "--vars", told, branch=PART)
            assert done["success"], done
            (counted,) = harsh.session.sql("select count(*) as snapshots from silver.redactions.snapshots")
            written.append(int(str(counted["snapshots"])))
        assert [written[1] - written[0], written[2] - written[1]] == [0, 1]


@pytest.mark.heavy
def test_a_build_in_part_equals_a_full_build(harsh: HarshLake) -> None:
    _check_builds_in_part(
        harsh,
        [
            [
                "events_come", "settings_are_rejected", "redactions_go", "events_go", "people_are_erased",
                "outliers_get_a_place", "states_of_events_are_whole",
            ]
        ],
        "few",
    )  # fmt: skip


@pytest.mark.heavy
def test_many_changes_cause_a_full_build(harsh: HarshLake) -> None:
    history = BronzeChanges(harsh, random.Random("too much"))
    with branched_tables(harsh):
        before = build_rows(harsh, PART, NEVER_IN_PART)["silver.event_visibility_inputs"]
        history.set("events", "outlier = not outlier", "true")
        after = build_rows(harsh, PART, 0, most=len(before) - 1)["silver.event_visibility_inputs"]
        assert harsh.session.written("silver.event_visibility_inputs", PART) == len(after) == len(before)
        assert [row["outlier"] for row in after] == [not row["outlier"] for row in before]


@pytest.mark.heavy
def test_random_changes_in_part_equal_a_full_build(harsh: HarshLake) -> None:
    chance = random.Random("much")
    _check_builds_in_part(
        harsh, [*([name] for name in CHANGES), *(chance.sample(CHANGES, 3) for _ in range(10))], "much"
    )
