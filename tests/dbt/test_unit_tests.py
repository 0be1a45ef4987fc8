"""dbt's unit tests pass on a lake; dbt reads the types of their inputs from the lake's tables."""

from tests.conftest import VisibilityLake


def test_the_unit_tests_of_the_models_pass(visibility_lake: VisibilityLake) -> None:
    # The affected keys are read from views. If other tests registered them in this session, nothing changed since then.
    visibility_lake.session.register_changes(visibility_lake.run.branch)
    # Each thread plans a query, which takes much of the driver's memory.
    result = visibility_lake.session.dbt(
        "test", "--select", "test_type:unit", "--threads", "2", branch=visibility_lake.run.branch
    )
    failures = {name: outcome for name, outcome in result["results"].items() if outcome[0] != "pass"}
    assert (result["success"], failures) == (True, {}), result["exception"]
    assert len(result["results"]) >= 15


def test_rows_of_all_tables_bound_a_broadcast(visibility_lake: VisibilityLake) -> None:
    """The driver has to hold keys from several tables, and each table can be large."""
    ((rows,),) = (
        row.values()
        for row in visibility_lake.session.sql("select count(*) from bronze.events", visibility_lake.run.branch)
    )
    events, rooms = "source('synapse', 'events')", "source('synapse', 'rooms')"
    for tables, hint in ((events, "/*+ broadcast(x) */"), (f"{events}, {rooms}", "")):
        macro = "{{ broadcast_if_few('x', [" + tables + f"], {rows})" + " | trim }}"
        result = visibility_lake.session.dbt(
            "show", "--inline", f"select assert_true('{macro}' = '{hint}') as is_right",
            "--vars", "{changes_are_known: true}", branch=visibility_lake.run.branch,
        )  # fmt: skip
        assert result["success"], (tables, result)
