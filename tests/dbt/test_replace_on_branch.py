"""The materialization `replace_on_branch` rebuilds tables on a branch; only changed rooms are resolved again."""

from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from tests.support.bronze_rows import GROUP_TABLES, append_groups, create_tables
from tests.support.dbt import DbtSession, SingleModelProject

FIRST, SECOND = "run_20261117T000000Z_00000001", "run_20261118T000000Z_00000002"
ROW_GROUP = "write.parquet.row-group-size-bytes"


@pytest.fixture
def project(tmp_path: Path) -> SingleModelProject:
    return SingleModelProject(tmp_path / "project")


def build(session: DbtSession, project: SingleModelProject, branch: str) -> tuple[str, str]:
    """Build the model, and return its status and message."""
    result = session.dbt("run", branch=branch, project=project.folder)
    assert result["results"], result
    status, message = result["results"]["thing"]
    return status, message


def fast_forward(session: DbtSession, name: str = "thing") -> None:
    """Publish the table that the first run built, and drop its branch."""
    session.sql(f"call lake.system.fast_forward('silver.{name}', 'main', '{FIRST}')")
    session.sql(f"alter table silver.{name} drop branch `{FIRST}`")


def test_properties_of_a_table_are_those_of_its_model(session: DbtSession, project: SingleModelProject) -> None:
    project.model("{{ config(clustered_by='a') }} select 1 as a", a="int")
    results = []
    for _ in range(2):
        assert build(session, project, FIRST)[0] == "success"
        results += session.sql(f"show tblproperties silver.thing ('{ROW_GROUP}')")
        session.sql(f"alter table silver.thing set tblproperties ('{ROW_GROUP}' = '1048576')")
    assert [row["value"] for row in results] == ["4194304", "4194304"]


def test_a_table_is_rebuilt_on_a_branch(session: DbtSession, project: SingleModelProject) -> None:
    # In the first run, main does not exist yet.
    project.model("select 1 as a, 'x' as b union all select 2, 'y'", a="int", b="string")
    assert build(session, project, FIRST)[0] == "success"
    assert session.sql("select * from silver.thing") == []
    assert session.sql("select * from silver.thing order by a", FIRST) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert session.sql("select name from silver.thing.refs") == [{"name": FIRST}]
    fast_forward(session)

    # The second run adds a column and removes a row, in one commit.
    project.model("select 'z' as b, 7L as c, 3 as a", b="string", c="bigint", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert session.sql("select * from silver.thing", SECOND) == [{"a": 3, "b": "z", "c": 7}]
    assert session.sql("select a, c from silver.thing order by a") == [{"a": 1, "c": None}, {"a": 2, "c": None}]
    assert session.sql("select count(*) as snapshots from silver.thing.snapshots") == [{"snapshots": 2}]
    comments = {row["col_name"]: row["comment"] for row in session.sql("describe silver.thing")}
    assert comments == {"a": "It's a", "b": "It's b", "c": "It's c"}
    assert "CatalogNotFoundException" not in session.log.read_text()

    # A second build with unchanged inputs writes nothing.
    assert build(session, project, SECOND)[0] == "success"
    assert session.sql("select * from silver.thing", SECOND) == [{"a": 3, "b": "z", "c": 7}]
    assert session.sql("select count(*) as snapshots from silver.thing.snapshots") == [{"snapshots": 2}]


@pytest.mark.parametrize(
    ("rows", "failures"),
    [
        pytest.param("('a', 1, 1), ('a', 2, 1), ('b', null, 1)", 0, id="valid"),
        pytest.param("('a', 1, 1), ('a', 1, 2), ('b', 1, 1)", 1, id="a repeated key"),
        pytest.param("('a', null, 1), ('a', null, 2), ('b', 1, 3)", 1, id="a repeated key with NULL"),
        pytest.param("(null, 1, 1), ('a', 1, 1)", 1, id="NULL in the key"),
        pytest.param("('a', 1, null), ('b', 1, 1)", 1, id="NULL in another column"),
        pytest.param("('a', 1, 1), ('a', 1, 1), (null, 2, 1), ('b', 2, null)", 3, id="several faults"),
    ],
)
def test_keys_of_a_table_are_valid(session: DbtSession, project: SingleModelProject, rows: str, failures: int) -> None:
    project.model(
        f"select * from values {rows} as rows(a, b, c)",
        meta="{primary_key: [a, b], nullable_key: [b]}",
        test="{valid_key: {name: thing_has_valid_keys, arguments: {not_null: [c]}}}",
        a="string", b="int", c="int",
    )  # fmt: skip
    assert build(session, project, FIRST)[0] == "success"
    result = session.dbt("test", branch=FIRST, project=project.folder)
    status, message = result["results"]["thing_has_valid_keys"]
    assert status == ("fail" if failures else "pass")
    assert failures == 0 or f"Got {failures} result" in message


def test_columns_may_not_be_dropped_or_changed(session: DbtSession, project: SingleModelProject) -> None:
    project.model("select 3 as a, 'z' as b, 7L as c", a="int", b="string", c="bigint")
    assert build(session, project, FIRST)[0] == "success"
    fast_forward(session)
    for sql, columns, problem in (
        ("select 3 as a, 'z' as b", {"a": "int", "b": "string"}, "c is in the table and no longer in the model"),
        (
            "select 3L as a, 'z' as b, 7L as c", {"a": "bigint", "b": "string", "c": "bigint"},
            "a is int in the table and bigint in the model",
        ),
        ("select 3 as a, 8 as b, 7L as c", {"a": "int", "b": "string", "c": "bigint"}, "contract"),
    ):  # fmt: skip
        project.model(sql, **columns)
        status, message = build(session, project, SECOND)
        assert status == "error"
        assert problem in message
        assert session.sql("select * from silver.thing", SECOND) == [{"a": 3, "b": "z", "c": 7}]


def test_a_table_is_refused_and_a_view_is_only_checked(session: DbtSession, project: SingleModelProject) -> None:
    """dbt's own materializations would change main before the audit."""
    columns = {"a": "int", "b": "string", "c": "bigint"}
    project.model("select 1 as a, 'x' as b, 7L as c", **columns)
    assert build(session, project, FIRST)[0] == "success"
    fast_forward(session)
    project.model("select 3 as a, 'z' as b, 7L as c", "table", **columns)
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "before the audit" in message
    project.model("select 3 as a, 'z' as b, 7L as c", "view", **columns)
    assert build(session, project, SECOND)[0] == "success"
    project.model("select 3 as a, 'z' as b, 'not a number' as c", "view", **columns)
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "contract" in message
    assert session.sql("select a from silver.thing") == [{"a": 1}]


def test_a_table_is_only_rewritten_when_its_inputs_changed(session: DbtSession, project: SingleModelProject) -> None:
    project.model("select 1 as a", a="int")
    models = project.folder / "models" / "silver"
    (models / "more.sql").write_text("select a + 1 as b from {{ ref('thing') }}")
    (models / "_more.yml").write_text(
        "models: [{name: more, description: More, columns: [{name: b, data_type: int, description: B}]}]"
    )

    def snapshots() -> dict[str, int]:
        return {
            name: session.sql(f"select count(*) as n from silver.{name}.snapshots")[0]["n"]
            for name in ("thing", "more")
        }

    assert build(session, project, FIRST)[0] == "success"
    for name in ("thing", "more"):
        fast_forward(session, name)
    assert snapshots() == {"thing": 1, "more": 1}

    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 1, "more": 1}
    assert session.sql("select b from silver.more", SECOND) == [{"b": 2}]

    project.model("select 2 as a", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 2, "more": 2}
    assert session.sql("select b from silver.more", SECOND) == [{"b": 3}]
    assert session.sql("select b from silver.more") == [{"b": 2}]

    # With compared_by: rows, a change of the SQL alone rewrites nothing.
    by_rows = "{{ config(meta={'compared_by': 'rows'}) }} "
    project.model(by_rows + "select 2 as a", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 3, "more": 3}
    project.model(by_rows + "select 1 + 1 as a", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 3, "more": 3}
    project.model(by_rows + "select 1 + 2 as a", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 4, "more": 4}
    assert session.sql("select b from silver.more", SECOND) == [{"b": 4}]


def test_concurrent_builds_record_their_own_inputs(session: DbtSession, project: SingleModelProject) -> None:
    project.model("select 0 as a", a="int")
    models = project.folder / "models" / "silver"
    names = [f"other_{number}" for number in range(7)]
    for number, name in enumerate(names):
        (models / f"{name}.sql").write_text(f"select {number} as a")
    entries = "".join(
        f"  - {{name: {name}, description: Other, columns: [{{name: a, data_type: int, description: A}}]}}\n"
        for name in names
    )
    (models / "_others.yml").write_text(f"models:\n{entries}")
    for _ in range(2):
        assert build(session, project, FIRST)[0] == "success"
    snapshots_by_table = {name: session.sql(f"select 1 from silver.{name}.snapshots") for name in ("thing", *names)}
    assert {name: len(snapshots) for name, snapshots in snapshots_by_table.items()} == dict.fromkeys(
        snapshots_by_table, 1
    )


def read_intervals(session: DbtSession, branch: str) -> list[dict[str, object]]:
    columns = "room_id, type, state_key, first_position, last_position, event_id"
    return session.sql(f"select {columns} from silver.state_intervals order by {columns}", branch)


def test_changed_rooms_alone_are_resolved_again(session: DbtSession, lake: Settings) -> None:
    catalog = open_catalog(lake)
    create_tables(catalog, (*GROUP_TABLES, "event_to_state_groups"))
    states = {group: {"create": "$create", "name": f"$name{group}"} for group in (1, 3, 4, 5)}
    append_groups(
        catalog, {1: "!a", 2: "!a", 3: "!a", 4: "!b", 5: "!c", 8: "!d"} | dict.fromkeys(range(10, 20), "!e"), {2: 1},
        states | {2: {"topic": "$2"}, 8: {"name": "$8"}},
    )  # fmt: skip
    assert not session.resolve(FIRST, 0)
    assert len(read_intervals(session, FIRST)) == 9
    # No resolve returns this interval, so it remains only if its room is not resolved again.
    (snapshot,) = session.sql(
        "select summary['built-from'] as property from silver.state_intervals.refs"
        " join silver.state_intervals.snapshots using (snapshot_id)"
    )
    session.sql(
        f"insert into silver.state_intervals with (`snapshot-property.built-from` = '{snapshot['property']}')"
        " select '!b', 'unknown', '', 0, 0, '$unchanged'",
        FIRST,
    )
    for name in ("state_positions", "state_intervals", "state_faults", "state_changes"):
        session.sql(f"call lake.system.fast_forward('silver.{name}', 'main', '{FIRST}')")

    # In !a, a tree grows, so that the next tree moves. !c loses its group, and !d loses a row.
    for statement in (
        "insert into bronze.state_groups (id, room_id) values (7, '!a')",
        "insert into bronze.state_group_edges (state_group, prev_state_group) values (7, 1)",
        "insert into bronze.state_groups_state (state_group, type, state_key, event_id) values (7, 'topic', '', '$7')",
        "delete from bronze.state_groups where id = 5",
        "delete from bronze.state_groups_state where state_group = 8",
    ):
        session.sql(statement, SECOND)
    assert session.resolve(SECOND, 0)
    partial_intervals = read_intervals(session, SECOND)
    positions = session.sql("select * from silver.state_positions order by room_id, position", SECOND)
    assert not session.resolve(SECOND, 1_000_000)
    assert {row["room_id"] for row in partial_intervals} == {"!a", "!b"}
    assert [row for row in partial_intervals if row["event_id"] != "$unchanged"] == read_intervals(session, SECOND)
    assert len(partial_intervals) == len(read_intervals(session, SECOND)) + 1
    assert positions == session.sql("select * from silver.state_positions order by room_id, position", SECOND)
