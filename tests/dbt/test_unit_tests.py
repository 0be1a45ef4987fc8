"""dbt's unit tests, on a lake, because dbt takes the types of their inputs from its tables."""

from tests.conftest import HarshLake


def test_the_models_do_what_their_unit_tests_say(harsh: HarshLake) -> None:
    done = harsh.session.dbt("test", "--select", "test_type:unit", branch=harsh.run.branch)
    assert done["success"], done
    assert len(done["results"]) >= 15
