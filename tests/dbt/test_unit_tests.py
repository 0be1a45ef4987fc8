"""dbt's unit tests, on a lake, because dbt takes the types of their inputs from its tables."""

from tests.conftest import HarshLake


def test_the_unit_tests_of_the_models_pass(harsh: HarshLake) -> None:
    # The affected keys are read from views. If other tests registered them in this session, nothing changed since then.
    harsh.session.register_changes(harsh.run.branch)
    # Each thread plans a query, which takes much of the driver's memory.
    result = harsh.session.dbt("test", "--select", "test_type:unit", "--threads", "2", branch=harsh.run.branch)
    failed = {name: outcome for name, outcome in result["results"].items() if outcome[0] != "pass"}
    assert (result["success"], failed) == (True, {}), result["exception"]
    assert len(result["results"]) >= 15
