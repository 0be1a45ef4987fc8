"""The findings of ``gold.state_integrity`` are counted by check and compared with the previous release."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.functions import lit

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build import project
from synapse_lakehouse.iceberg.write.publish import fast_forward_main
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import lake_maker

TABLE = "gold.state_integrity"
COLUMNS = "check_name string, severity string, room_id string, subject string"
DAY = datetime(2026, 1, 1, tzinfo=UTC)

GROUPS, EDGES, MEMBERS = "state_groups_state_type_idx", "state_group_edges_idx", "room_memberships_room_id"
INDEXES = {GROUPS: "state_groups_state", EDGES: "state_group_edges", MEMBERS: "room_memberships"}
ACCEPTED = "!accepted"

Finding = tuple[str, str, str | None, str]
"""Check, severity, room, subject."""


@pytest.fixture(scope="module")
def app(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkApp]:
    with lake_maker(server, settings, tmp_path_factory.mktemp("lake")) as make:
        lake = make(lakehouse_acknowledged_rooms=f"{ACCEPTED}@2026-01-01")
        app = SparkApp("counts", Run("counts", DAY, DAY + timedelta(days=1)), lake)
        app.catalog.create_namespace("gold")
        app.spark.sql(f"create table {TABLE} ({COLUMNS}) using iceberg tblproperties ('write.wap.enabled' = 'true')")
        app.catalog.create_namespace("silver")
        app.spark.sql("create table silver.index_faults (index_name string, table_name string) using iceberg")
        app.spark.sql(f"insert into silver.index_faults values {', '.join(map(str, INDEXES.items()))}")
        yield app
        app.spark.stop()


def count(app: SparkApp, findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Write the findings of the run, and return the counts of each check with findings."""
    app.spark.createDataFrame([*findings], COLUMNS).writeTo(TABLE).overwrite(lit(True))
    rows = project.count_integrity_findings(app)
    assert [row["check_name"] for row in rows] == [check.name for check in INTEGRITY_CHECKS]
    names = ("findings", "serious", "rooms", "new_findings", "unexplained")
    return {row["check_name"]: {name: row[name] for name in names} for row in rows if row["findings"]}


def counts(findings: int, serious: int, rooms: int, new_findings: int, unexplained: int) -> dict[str, int]:
    return locals()


def test_counts_of_two_releases(app: SparkApp) -> None:
    first: list[Finding] = [
        ("event_missing", "fail", "!a", "$1"),
        ("event_missing", "fail", "!a", "$2"),
        ("event_missing", "info", "!b", "$3"),
        ("event_missing", "fail", None, "$4"),
        ("state_reset", "fail", "!a", "m.room.topic "),
        ("room_statistics", "warn", "!a", "joined_members"),
        ("room_statistics", "warn", "!c", "joined_members"),
    ]
    assert count(app, first) == {
        "event_missing": counts(4, 3, 1, 3, 3),
        "state_reset": counts(1, 1, 1, 1, 1),
        "room_statistics": counts(2, 2, 2, 2, 1),
    }

    fast_forward_main(app.spark, TABLE, app.run.branch, "release-1")
    remaining = [finding for finding in first if finding[3] != "$1"]
    assert count(app, [*remaining, ("event_missing", "fail", "!d", "$4")]) == {
        "event_missing": counts(4, 3, 2, 1, 3),
        "state_reset": counts(1, 1, 1, 0, 1),
        "room_statistics": counts(2, 2, 2, 0, 1),
    }


def test_a_finding_without_a_room_explains_no_other(app: SparkApp) -> None:
    assert count(app, [("state_reset", "fail", None, "x"), ("room_statistics", "warn", None, "y")]) == {
        "state_reset": counts(1, 1, 0, 1, 1),
        "room_statistics": counts(1, 1, 0, 1, 1),
    }


def test_a_finding_for_information_explains_no_other(app: SparkApp) -> None:
    findings = [("state_reset", "info", "!a", "x"), ("room_statistics", "warn", "!a", "y")]
    assert count(app, findings)["room_statistics"]["unexplained"] == 1


def test_an_acknowledged_finding_explains_others(app: SparkApp) -> None:
    changed = [("state_group_changed", "info", room, "1") for room in (ACCEPTED, "!a")]
    incomplete = [("state_group_incomplete", "fail", room, f"$of{room}") for room in (ACCEPTED, "!a")]
    counted = count(app, [*changed, *incomplete])
    assert counted["state_group_changed"] == counts(2, 0, 0, 0, 0)
    assert counted["state_group_incomplete"] == counts(2, 2, 2, 2, 1)


def test_an_index_of_another_table_explains_no_change_of_state(app: SparkApp) -> None:
    missing = ("index_missing_entry", "fail", "!a", f'{MEMBERS} {{"room_id": "!a"}}')
    repeated = ("index_repeated_entry", "fail", "!a", f'{MEMBERS} {{"room_id": "!b"}}')
    counted = count(app, [missing, repeated, ("state_group_changed", "fail", "!a", "1")])
    unexplained = {name: row["unexplained"] for name, row in counted.items()}
    assert unexplained == {"index_missing_entry": 1, "index_repeated_entry": 0, "state_group_changed": 1}


CAUSES: dict[str, tuple[str, list[Finding]]] = {
    "a bad index": (
        "index_foreign_entry",
        [
            ("index_foreign_entry", "fail", "!a", f'{GROUPS} {{"state_group": 1}}'),
            ("index_missing_entry", "fail", "!a", f'{GROUPS} {{"state_group": 2}}'),
            # Foreign entries and missing entries can have different rooms.
            ("index_missing_entry", "fail", "!b", f'{GROUPS} {{"state_group": 3}}'),
            ("index_repeated_entry", "fail", "!b", f'{GROUPS} {{"state_group": 4}}'),
            ("index_unreadable", "fail", None, f"{GROUPS} could not read a block"),
            ("state_row_repeated", "fail", "!a", "1 m.room.topic "),
            ("state_group_changed", "fail", "!a", "1"),
            ("state_group_without_creation", "fail", "!a", "1"),
            ("state_group_incomplete", "fail", "!a", "$1"),
            ("state_not_of_previous_event", "fail", "!a", "$2"),
            ("current_state_differs", "fail", "!a", "m.room.topic "),
            ("sliding_sync_outdated", "fail", "!a", "sliding_sync_joined_rooms"),
            ("stray_state_rows", "warn", "!a", "5"),
        ],
    ),
    "entries that an index lacks": (
        "index_missing_entry",
        [
            ("index_missing_entry", "fail", None, f'{EDGES} {{"state_group": 1}}'),
            ("index_repeated_entry", "fail", None, f'{EDGES} {{"state_group": 1}}'),
        ],
    ),
    "lost rows of state": (
        "state_group_changed",
        [
            ("state_group_changed", "fail", "!a", "1"),
            ("state_group_without_creation", "fail", "!a", "1"),
            ("state_group_incomplete", "fail", "!a", "$1"),
            ("state_not_of_previous_event", "fail", "!a", "$2"),
        ],
    ),
    "a second row of state": (
        "state_row_repeated",
        [
            ("state_row_repeated", "fail", "!a", "1 m.room.topic "),
            ("state_group_changed", "fail", "!a", "1"),
            ("state_not_of_previous_event", "fail", "!a", "$2"),
        ],
    ),
    "a lost state group": (
        "state_group_missing",
        [
            ("state_group_missing", "fail", "!a", "1"),
            ("stray_state_rows", "warn", "!a", "1"),
            ("state_group_missing_predecessor", "fail", "!a", "2"),
            ("state_group_changed", "fail", "!a", "2"),
            ("state_group_without_creation", "fail", "!a", "2"),
        ],
    ),
    "a lost predecessor": (
        "state_group_missing_predecessor",
        [
            ("state_group_missing_predecessor", "fail", "!a", "2"),
            ("stray_state_rows", "warn", "!a", "1"),
        ],
    ),
    "a lost event": ("event_lost", [("event_lost", "fail", "!a", "$1"), ("event_missing", "fail", "!a", "$1")]),
    "damage before the first release": (
        "state_group_without_creation",
        [
            ("state_group_without_creation", "fail", "!a", "1"),
            ("state_group_incomplete", "fail", "!a", "$1"),
            ("state_not_of_previous_event", "fail", "!a", "$2"),
        ],
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_findings_of_one_cause_are_one_incident(app: SparkApp, cause: str) -> None:
    check, findings = CAUSES[cause]
    counts_by_check = count(app, findings)
    assert counts_by_check.keys() == {name for name, *_ in findings}
    assert {name for name, row in counts_by_check.items() if row["unexplained"]} == {check}


def test_findings_of_another_room_or_index_have_another_cause(app: SparkApp) -> None:
    counts_by_check = count(
        app,
        [
            ("index_foreign_entry", "fail", "!a", f'{GROUPS} {{"state_group": 1}}'),
            ("index_missing_entry", "fail", "!a", f'{EDGES} {{"state_group": 1}}'),
            ("state_group_changed", "fail", "!b", "9"),
        ],
    )
    assert [row["unexplained"] for row in counts_by_check.values()] == [1, 1, 1]
