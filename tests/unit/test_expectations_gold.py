"""The gate of gold: dbt's own tests and the keys on the run's branch."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.memory import InMemoryCatalog

from expectations import gold, key_counts, validate
from expectations.alert_findings import build_findings
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.room_state import integrity_checks

DAY = datetime(2026, 11, 17, tzinfo=UTC)
RUN = Run("scheduled__2026-11-18T00:00:00+00:00", DAY, DAY + timedelta(days=1))
EVENTS = pa.schema([("event_id", pa.string()), ("room_id", pa.string())])

MANIFEST: dict[str, Any] = {
    "nodes": {
        "model.p.events": {
            "unique_id": "model.p.events", "resource_type": "model", "schema": "gold", "alias": "events",
            "config": {"materialized": "rebuild", "meta": {"primary_key": ["event_id"]}},
        },
        "test.p.unique_events": {
            "unique_id": "test.p.unique_events", "resource_type": "test", "name": "unique_events", "schema": "x",
            "attached_node": "model.p.events", "config": {"severity": "ERROR"}, "depends_on": {"nodes": []},
        },
        "test.p.agrees": {
            "unique_id": "test.p.agrees", "resource_type": "test", "name": "agrees", "schema": "x",
            "attached_node": None, "config": {"severity": "warn"}, "depends_on": {"nodes": ["source.p.synapse.rooms"]},
        },
    },
    "sources": {"source.p.synapse.rooms": {"schema": "bronze", "identifier": "rooms"}},
}  # fmt: skip


def results(**statuses: tuple[str, int | None]) -> dict[str, Any]:
    """dbt's ``run_results.json`` of ``RUN``, by the last part of what was run."""
    ids = {identifier.rpartition(".")[2]: identifier for identifier in MANIFEST["nodes"]}
    found = {"events": ("success", None), "unique_events": ("pass", 0), "agrees": ("pass", 0)} | statuses
    return {
        "metadata": {"env": {"RUN_ID": RUN.run_id}},
        "results": [
            {"unique_id": ids[name], "status": status, "failures": failures}
            for name, (status, failures) in found.items()
        ],
    }


@pytest.fixture
def lake(settings: Settings) -> InMemoryCatalog:
    """A lake in which bronze.events has three rows, and gold.events has them on the run's branch only."""
    catalog = InMemoryCatalog("lake", warehouse=settings.warehouse)
    for schema in ("audit", "gold"):
        catalog.create_namespace(schema)
    for name in ("audit.snapshots", "audit.table_facts", "audit.integrity", "audit.checks"):
        catalog.create_table(name, schema=store.AUDIT_SCHEMAS[name])
    find(catalog)
    store.append_audit_rows(
        catalog, "audit.table_facts", [{"table_name": "events", "rows": 3, "measured_at": DAY}], RUN
    )
    events = catalog.create_table("gold.events", schema=EVENTS)
    events.append(pa.table({"event_id": ["$0"], "room_id": ["!a"]}, schema=EVENTS))
    write(catalog, ["$1", "$2"])
    return catalog


def find(catalog: InMemoryCatalog, **serious: int) -> None:
    """Let the run's checks of the database find something, beside one finding of each for information."""
    rows = [
        {"check_name": one.name, "findings": 1 + serious.get(one.name, 0), "serious": serious.get(one.name, 0)}
        | {"counted_at": DAY + timedelta(seconds=len(serious))}
        for one in integrity_checks.INTEGRITY_CHECKS
    ]
    store.append_audit_rows(catalog, "audit.integrity", rows, RUN)


def write(catalog: InMemoryCatalog, event_ids: list[str | None]) -> None:
    """Append to gold.events on the run's branch."""
    events = catalog.load_table("gold.events")
    snapshot = events.current_snapshot()
    assert snapshot
    if RUN.branch not in events.refs():
        events.manage_snapshots().create_branch(snapshot.snapshot_id, RUN.branch).commit()
    events.append(
        pa.table({"event_id": event_ids, "room_id": ["!a"] * len(event_ids)}, schema=EVENTS), branch=RUN.branch
    )


def leave(settings: Settings, run_results: dict[str, Any]) -> None:
    """Leave artifacts where dbt leaves them."""
    target = settings.lakehouse_home / "dbt" / "target"
    target.mkdir(parents=True, exist_ok=True)
    (target / "manifest.json").write_text(json.dumps(MANIFEST), encoding="utf-8")
    (target / "run_results.json").write_text(json.dumps(run_results), encoding="utf-8")


def test_what_dbt_built_well_passes(settings: Settings, lake: InMemoryCatalog) -> None:
    leave(settings, results())
    judgement = validate.validate_gold(settings, lake, RUN)
    judgement.raise_if_failed()
    assert [check.sentence for check in judgement.checks] == [
        "gold.events: dbt built it — built",
        "gold.events: it has as many rows as bronze.events — 3 rows, 3 in bronze.events",
        "gold.events: no NULL in event_id — 0 rows with NULL in the key",
        "gold.events: every event_id occurs once — 0 rows repeating a key",
        "gold.events: dbt's test unique_events finds nothing — 0 rows against it",
        "bronze.rooms: dbt's test agrees finds nothing — 0 rows against it",
        *(
            f"check {one.name}: no {one.title} — 0 findings, and 1 for information"
            for one in integrity_checks.INTEGRITY_CHECKS
        ),
    ]
    recorded = lake.load_table("audit.checks").scan().to_arrow()
    assert set(recorded["stage"].to_pylist()) == {"gold"}
    assert recorded["severity"].to_pylist() == ["fail"] * 5 + ["warn"] * (1 + len(integrity_checks.INTEGRITY_CHECKS))


def test_damage_in_synapse_s_database_is_told_and_holds_no_release_back(
    settings: Settings, lake: InMemoryCatalog
) -> None:
    leave(settings, results())
    find(lake, state_reset=3)
    judgement = validate.validate_gold(settings, lake, RUN)
    judgement.raise_if_failed()
    said = "no pieces of state that are not what was said last — 3 findings, and 1 for information"
    assert [check.sentence for check in judgement.warnings] == [f"check state_reset: {said}"]
    told = AlertFinding(
        IncidentKind.INTEGRITY, "check state_reset", said, "a warning: it keeps no release from being published"
    )
    assert build_findings(judgement, is_first=False, fails_on_warnings=False) == [told]


@pytest.mark.parametrize(
    ("statuses", "failures", "warnings"),
    [
        pytest.param(
            {"unique_events": ("fail", 1234)},
            ["gold.events: dbt's test unique_events finds nothing — 1,234 rows against it"],
            [],
            id="a test that fails",
        ),
        pytest.param(
            {"agrees": ("warn", 2)},
            [],
            ["bronze.rooms: dbt's test agrees finds nothing — 2 rows against it"],
            id="a test that warns",
        ),
        pytest.param(
            {"events": ("error", None), "unique_events": ("skipped", None)},
            [
                "gold.events: dbt built it — it could not run: dbt's log says why",
                "gold.events: dbt's test unique_events finds nothing — it was skipped, because what it needs was not"
                " built",
            ],
            [],
            id="a model that breaks",
        ),
    ],
)
def test_what_dbt_found_is_judged(
    settings: Settings,
    lake: InMemoryCatalog,
    statuses: dict[str, tuple[str, int | None]],
    failures: list[str],
    warnings: list[str],
) -> None:
    leave(settings, results(**statuses))
    judgement = validate.validate_gold(settings, lake, RUN)
    assert [check.sentence for check in judgement.failures] == failures
    assert [check.sentence for check in judgement.warnings] == warnings


def test_a_test_that_dbt_left_out_fails(settings: Settings, lake: InMemoryCatalog) -> None:
    found = results()
    found["results"].pop(1)
    leave(settings, found)
    assert [check.sentence for check in validate.validate_gold(settings, lake, RUN).failures] == [
        "gold.events: dbt's test unique_events finds nothing — not measured by this run (unique_events.status)"
    ]


def test_keys_on_the_branch_are_judged(settings: Settings, lake: InMemoryCatalog) -> None:
    write(lake, ["$2", None])
    leave(settings, results())
    assert [check.sentence for check in validate.validate_gold(settings, lake, RUN).failures] == [
        "gold.events: it has as many rows as bronze.events — 5 rows, 3 in bronze.events",
        "gold.events: no NULL in event_id — 1 row with NULL in the key",
        "gold.events: every event_id occurs once — 1 row repeating a key",
    ]


def test_main_is_read_where_there_is_no_branch(lake: InMemoryCatalog) -> None:
    assert key_counts.count_keys_on_branch(lake, "no such branch", "gold.events", ("event_id",))["rows"] == 1
    assert key_counts.count_keys_on_branch(lake, RUN.branch, "gold.events", ()) == {"rows": 3}
    assert key_counts.count_keys_on_branch(lake, RUN.branch, "gold.no_such_table", ("event_id",)) == {}


def test_keys_of_several_columns_are_counted() -> None:
    rows = pa.table({"user": ["a", "a", "a", None, None], "room id": [1, 2, 2, 3, 3]})
    assert key_counts.count_keys(rows, ("user", "room id")) == {"rows": 5, "null_keys": 2, "duplicate_keys": 1}


def test_artifacts_of_another_run_are_refused(settings: Settings, lake: InMemoryCatalog) -> None:
    with pytest.raises(gold.DbtArtifactError, match="Clear the whole run"):
        validate.validate_gold(settings, lake, RUN)
    other = results()
    other["metadata"]["env"]["RUN_ID"] = "manual__2026-11-01"
    leave(settings, other)
    with pytest.raises(gold.DbtArtifactError, match=r"are of run manual__2026-11-01, not of scheduled__2026-11-18"):
        validate.validate_gold(settings, lake, RUN)


def test_every_model_declares_its_key() -> None:
    declared = (PROJECT_FOLDER / "dbt" / "models").rglob("*.yml")
    models = [
        model for path in declared for model in yaml.safe_load(path.read_text(encoding="utf-8")).get("models", [])
    ]
    assert models
    assert [model["name"] for model in models if not model["config"].get("meta", {}).get("primary_key")] == []
