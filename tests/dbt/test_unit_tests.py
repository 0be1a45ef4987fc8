"""dbt's unit tests pass on a lake; dbt reads the types of their inputs from the lake's tables."""

from tests.conftest import HarshLake


def test_the_unit_tests_of_the_models_pass(harsh: HarshLake) -> None:
    # The affected keys are read from views. If other tests registered them in this session, nothing changed since then.
    harsh.session.register_changes(harsh.run.branch)
    # Each thread plans a query, which takes much of the driver's memory.
    result = harsh.session.dbt("test", "--select", "test_type:unit", "--threads", "2", branch=harsh.run.branch)
    failures = {name: outcome for name, outcome in result["results"].items() if outcome[0] != "pass"}
    assert (result["success"], failures) == (True, {}), result["exception"]
    assert len(result["results"]) >= 15


def test_rows_of_all_tables_bound_a_broadcast(harsh: HarshLake) -> None:
    """The driver has to hold keys from several tables, and each table can be large."""
    ((rows,),) = (row.values() for row in harsh.session.sql("select count(*) from bronze.events", harsh.run.branch))
    events, rooms = "source('synapse', 'events')", "source('synapse', 'rooms')"
    for tables, hint in ((events, "/*+ broadcast(x) */"), (f"{events}, {rooms}", "")):
        macro = "{{ broadcast_if_few('x', [" + tables + f"], {rows})" + " | trim }}"
        result = harsh.session.dbt(
            "show", "--inline", f"select assert_true('{macro}' = '{hint}') as is_right",
            "--vars", "{changes_are_known: true}", branch=harsh.run.branch,
        )  # fmt: skip
        assert result["success"], (tables, result)
