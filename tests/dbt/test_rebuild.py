"""The materialization `replace_on_branch`, on a lake of its own with a project of one model."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import environment, lake_maker
from tests.support.dbt import DbtSession, dbt_session

FIRST, SECOND = "run_20261117T000000Z_00000001", "run_20261118T000000Z_00000002"
ROW_GROUP = "write.parquet.row-group-size-bytes"


class Project:
    """A copy of the project with one model of its own instead of all others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("silver", "gold", "bronze", "_exposures.yml")
        shutil.copytree(PROJECT_FOLDER / "dbt", folder, ignore=ignored)
        (folder / "models" / "silver").mkdir()

    def model(self, sql: str, materialized: str = "replace_on_branch", **columns: str) -> None:
        """Let the model ``thing`` be ``sql``, under a contract of ``columns``."""
        lines = [
            f"      - {{name: {name}, data_type: {type}, description: It's {name}}}" for name, type in columns.items()
        ]
        config = f"    config: {{materialized: {materialized}}}"
        head = ["models:", "  - name: thing", "    description: A thing", config, "    columns:"]
        (self.folder / "models" / "silver" / "_thing.yml").write_text("\n".join([*head, *lines]))
        (self.folder / "models" / "silver" / "thing.sql").write_text(sql)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture(scope="module")
def lake(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with lake_maker(server, settings, tmp_path_factory.mktemp("rebuild")) as new_lake:
        yield new_lake()


@pytest.fixture(scope="module")
def shared_session(lake: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DbtSession]:
    with dbt_session(environment(lake), tmp_path_factory.mktemp("session")) as session:
        yield session


@pytest.fixture
def session(shared_session: DbtSession) -> Iterator[DbtSession]:
    """A session on a lake without tables."""
    yield shared_session
    for table in shared_session.sql("show tables in silver"):
        shared_session.sql(f"drop table silver.{table['tableName']}")


def build(session: DbtSession, project: Project, branch: str) -> tuple[str, str]:
    """Status and message of the model."""
    done = session.dbt("run", branch=branch, project=project.folder)
    assert done["results"], done
    status, message = done["results"]["thing"]
    return status, message


def test_properties_of_a_table_are_those_of_its_model(session: DbtSession, project: Project) -> None:
    project.model("{{ config(clustered_by='a') }} select 1 as a", a="int")
    found = []
    for _ in range(2):
        assert build(session, project, FIRST)[0] == "success"
        found += session.sql(f"show tblproperties silver.thing ('{ROW_GROUP}')")
        session.sql(f"alter table silver.thing set tblproperties ('{ROW_GROUP}' = '1048576')")
    assert [row["value"] for row in found] == ["4194304", "4194304"]


def test_a_table_is_rebuilt_on_a_branch_and_only_ever_grows(session: DbtSession, project: Project) -> None:
    # a first run: there is no main yet
    project.model("select 1 as a, 'x' as b union all select 2, 'y'", a="int", b="string")
    assert build(session, project, FIRST)[0] == "success"
    assert session.sql("select * from silver.thing") == []
    assert session.sql("select * from silver.thing order by a", FIRST) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert session.sql("select name from silver.thing.refs") == [{"name": FIRST}]
    session.sql(f"call lake.system.fast_forward('silver.thing', 'main', '{FIRST}')")
    session.sql(f"alter table silver.thing drop branch `{FIRST}`")

    # a second one, with a further column in between and one row less, in one commit
    project.model("select 'z' as b, 7L as c, 3 as a", b="string", c="bigint", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert session.sql("select * from silver.thing", SECOND) == [{"a": 3, "b": "z", "c": 7}]
    assert session.sql("select a, c from silver.thing order by a") == [{"a": 1, "c": None}, {"a": 2, "c": None}]
    assert session.sql("select count(*) as snapshots from silver.thing.snapshots") == [{"snapshots": 2}]
    described = {row["col_name"]: row["comment"] for row in session.sql("describe silver.thing")}
    assert described == {"a": "It's a", "b": "It's b", "c": "It's c"}

    # twice on one branch is as good as once: what it is made of did not change, so nothing is written
    assert build(session, project, SECOND)[0] == "success"
    assert session.sql("select * from silver.thing", SECOND) == [{"a": 3, "b": "z", "c": 7}]
    assert session.sql("select count(*) as snapshots from silver.thing.snapshots") == [{"snapshots": 2}]

    # what readers rely on does not go away
    project.model("select 3 as a, 'z' as b", a="int", b="string")
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "c is in the table and no longer in the model" in message
    project.model("select 3L as a, 'z' as b, 7L as c", a="bigint", b="string", c="bigint")
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "a is int in the table and bigint in the model" in message
    assert session.sql("select * from silver.thing", SECOND) == [{"a": 3, "b": "z", "c": 7}]

    # a model that does not keep its own contract writes nothing
    project.model("select 3 as a, 8 as b, 7L as c", a="int", b="string", c="bigint")
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "contract" in message

    # dbt's own way around the audit is closed, and a view is only tried
    project.model("select 3 as a, 'z' as b, 7L as c", "table", a="int", b="string", c="bigint")
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "before the audit" in message
    project.model("select 3 as a, 'z' as b, 7L as c", "view", a="int", b="string", c="bigint")
    assert build(session, project, SECOND)[0] == "success"
    project.model("select 3 as a, 'z' as b, 'not a number' as c", "view", a="int", b="string", c="bigint")
    status, message = build(session, project, SECOND)
    assert status == "error"
    assert "contract" in message
    assert session.sql("select a from silver.thing order by a") == [{"a": 1}, {"a": 2}]


def test_a_table_is_only_rewritten_when_what_it_is_made_of_changed(session: DbtSession, project: Project) -> None:
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
        session.sql(f"call lake.system.fast_forward('silver.{name}', 'main', '{FIRST}')")
    assert snapshots() == {"thing": 1, "more": 1}

    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 1, "more": 1}
    assert session.sql("select b from silver.more", SECOND) == [{"b": 2}]

    project.model("select 2 as a", a="int")
    assert build(session, project, SECOND)[0] == "success"
    assert snapshots() == {"thing": 2, "more": 2}
    assert session.sql("select b from silver.more", SECOND) == [{"b": 3}]
    assert session.sql("select b from silver.more") == [{"b": 2}]

    # where only its rows matter, how they come about does not
    by_rows = "{{ config(compared_by='rows') }} "
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


def test_tables_that_are_rebuilt_beside_each_other_each_keep_what_they_are_made_of(
    session: DbtSession, project: Project
) -> None:
    project.model("select 0 as a", a="int")
    models = project.folder / "models" / "silver"
    others = [f"other_{number}" for number in range(7)]
    for number, name in enumerate(others):
        (models / f"{name}.sql").write_text(f"select {number} as a")
    described = "".join(
        f"  - {{name: {name}, description: Other, columns: [{{name: a, data_type: int, description: A}}]}}\n"
        for name in others
    )
    (models / "_others.yml").write_text(f"models:\n{described}")
    for _ in range(2):
        assert build(session, project, FIRST)[0] == "success"
    written = {name: session.sql(f"select 1 from silver.{name}.snapshots") for name in ("thing", *others)}
    assert {name: len(snapshots) for name, snapshots in written.items()} == dict.fromkeys(written, 1)


def test_state_of_trees_that_did_not_change_is_carried_over(session: DbtSession, lake: Settings) -> None:
    catalog, whole = open_catalog(lake), catalogue.load_catalogue()
    names = ("state_groups", "state_group_edges", "state_groups_state")
    tables.ensure_tables(catalog, whole.model_copy(update={"tables": tuple(map(whole.table, names))}))

    def add(groups: dict[int, str], edges: dict[int, int], rows: dict[int, dict[str, str]]) -> None:
        stored = [
            {"state_group": group, "type": kind, "state_key": "", "event_id": event}
            for group, state in rows.items()
            for kind, event in state.items()
        ]
        contents = (
            [{"id": group, "room_id": room} for group, room in groups.items()],
            [{"state_group": group, "prev_state_group": prev} for group, prev in edges.items()],
            stored,
        )
        for name, content in zip(names, contents, strict=True):
            schema = tables.get_arrow_schema(whole.table(name))
            catalog.load_table(f"bronze.{name}").append(pa.Table.from_pylist(content, schema=schema))

    def intervals(branch: str) -> list[dict[str, object]]:
        columns = "room_id, type, state_key, first_position, last_position, event_id"
        return session.sql(f"select {columns} from silver.state_intervals order by {columns}", branch)

    carrying, anew = FIRST, SECOND
    wholes = {group: {"create": "$create", "name": f"$name{group}"} for group in (1, 3, 4, 5)}
    add(
        {1: "!a", 2: "!a", 3: "!a", 4: "!b", 5: "!c", 8: "!d"}, {2: 1}, wholes | {2: {"topic": "$2"}, 8: {"name": "$8"}}
    )
    session.resolve(carrying, 0)
    assert len(intervals(carrying)) == 9

    # A row that nobody would find when reading the groups of !b shows that they are not read.
    (said,) = session.sql(
        "select summary from silver.state_intervals.refs join silver.state_intervals.snapshots using (snapshot_id)"
    )
    kept = ", ".join(
        f"`snapshot-property.{key}` = '{said['summary'][key]}'" for key in ("built-from", "state-rows", "state-rules")
    )
    session.sql(
        f"insert into silver.state_intervals with ({kept}) replace where true"
        " select * from silver.state_intervals union all select '!b', 'unheard of', '', 0, 0, '$carried'",
        carrying,
    )
    # In !a a tree grows, so that the one after it moves; !c loses its group, and !d a row.
    add({7: "!a"}, {7: 1}, {7: {"topic": "$7"}})
    for name in names:
        session.sql(f"refresh table bronze.{name}")
    session.sql("delete from bronze.state_groups where id = 5")
    session.sql("alter table bronze.state_groups_state set tblproperties ('write.delete.mode' = 'merge-on-read')")
    session.sql("delete from bronze.state_groups_state where state_group = 8")
    session.resolve(carrying, 0)
    session.resolve(anew, 1_000_000)
    found = intervals(carrying)
    assert {row["room_id"] for row in found} == {"!a", "!b"}
    assert [row for row in found if row["event_id"] != "$carried"] == intervals(anew)
    assert len(found) == len(intervals(anew)) + 1


@pytest.mark.heavy
def test_only_events_that_changed_are_made_anew(session: DbtSession, lake: Settings) -> None:
    catalog, whole = open_catalog(lake), catalogue.load_catalogue()
    names = ("event_json", "events", "rooms")
    tables.ensure_tables(catalog, whole.model_copy(update={"tables": tuple(map(whole.table, names))}))

    def add(name: str, *rows: dict[str, object]) -> None:
        schema = tables.get_arrow_schema(whole.table(name))
        catalog.load_table(f"bronze.{name}").append(pa.Table.from_pylist(rows, schema=schema))
        session.sql(f"refresh table bronze.{name}")

    def event(number: int, room: str) -> dict[str, object]:
        return {"event_id": f"${number}", "room_id": room, "type": "m.room.redaction"}

    def json_of(number: int, told: str) -> dict[str, object]:
        event: dict[str, object] = {
            "type": "m.room.redaction",
            "sender": "@a:x",
            "room_id": "!a",
            "event_id": f"${number}",
        }
        event |= {"depth": 1, "origin_server_ts": 1, "hashes": {}, "auth_events": [], "prev_events": []}
        text = json.dumps(event | {"redacts": f"${told}", "content": {}})
        return {"event_id": f"${number}", "json": text, "internal_metadata": "{}", "format_version": 1}

    def built(branch: str, worth_it: int) -> list[dict[str, object]]:
        variables = json.dumps(session.increment(branch, worth_it))
        done = session.dbt("run", "--select", "event_fields", "--vars", variables, branch=branch)
        assert done["success"], done
        return session.sql("select * from silver.event_fields order by event_id, json_sha256", branch)

    add("rooms", {"room_id": "!a", "room_version": "1"}, {"room_id": "!b", "room_version": "1"})
    add("events", *(event(number, "!b" if number > 7 else "!a") for number in range(10)))
    add("event_json", *(json_of(number, "was") for number in range(10)))
    assert len(built(FIRST, 0)) == session.written("silver.event_fields", FIRST) == 10

    # One is purged, one pruned, one loses its row in events, two are new, and a room has another version.
    for name in names:
        session.sql(f"alter table bronze.{name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    session.sql("delete from bronze.event_json where event_id in ('$1', '$2')")
    add("event_json", json_of(2, "is"), json_of(10, "new"), json_of(11, "new"))
    session.sql("delete from bronze.events where event_id in ('$1', '$3')")
    add("events", event(10, "!a"))
    session.sql("delete from bronze.rooms where room_id = '!b'")
    add("rooms", {"room_id": "!b", "room_version": "11"})
    found = built(FIRST, 0)
    assert session.written("silver.event_fields", FIRST) == 6
    assert found == built(SECOND, 1_000_000)
    assert {row["event_id"]: row["redacts"] for row in found} == {
        "$0": "$was", "$2": "$is", "$3": None, "$4": "$was", "$5": "$was", "$6": "$was", "$7": "$was",
        "$8": None, "$9": None, "$10": "$new", "$11": None,
    }  # fmt: skip
