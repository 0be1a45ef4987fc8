"""Unit tests of the models, on a lake, because dbt takes the types of their inputs from its tables."""

from pathlib import Path

from tests.conftest import HarshLake
from tests.dbt.conftest import dbt_session


def test_the_models_do_what_their_unit_tests_say(harsh: HarshLake, tmp_path: Path) -> None:
    with dbt_session(harsh.settings, tmp_path) as session:
        done = session.dbt("test", "--select", "test_type:unit", branch=harsh.run.branch)
    assert done["success"], done
    assert len(done["results"]) >= 15
