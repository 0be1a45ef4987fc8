"""Damage of every kind in Synapse's database is found, reported and explained, and stops no release."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import psycopg
import pytest
from typer.testing import CliRunner

from expectations import validate
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS
from tests.conftest import PublishedLake, run_app
from tests.integration import damage
from tests.support.branch_views import create_branch_views

RUN = Run("test_integrity", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
FINDINGS = "select check_name, subject from gold.state_integrity where severity <> 'info'"


def test_a_healthy_database_has_no_finding(published: PublishedLake) -> None:
    with duckdb_reader.open_duckdb(published.settings) as connection:
        release = duckdb_reader.get_release(connection, published.settings)
        duckdb_reader.create_views(connection, published.settings, release, ["gold.state_integrity", "audit.checks"])
        assert connection.execute(FINDINGS).fetchall() == []
        subjects = connection.execute("select subject from audit.checks where subject like 'check %' and success")
        assert {subject for (subject,) in subjects.fetchall()} == {f"check {check.name}" for check in INTEGRITY_CHECKS}
    result = published.lakehouse("doctor", "--deep", "--format", "json")
    findings = {finding["subject"]: finding for finding in json.loads(result.stdout)}
    assert findings["integrity"]["level"] == findings["duplicates"]["level"] == "OK"
    assert findings["state_group_unreferenced"]["level"] == "OK"
    assert not {"WARN", "FAIL"} & {
        findings[check.name]["level"] for check in INTEGRITY_CHECKS if check.name in findings
    }


@pytest.fixture
def damaged_lake(new_lake: Callable[..., Settings], source_copy: str) -> tuple[Settings, set[tuple[str, str]]]:
    """Return a lake with the branch of a run on a damaged database, and the expected findings: check and subject."""
    with psycopg.connect(source_copy) as source:
        expected = damage.plant(source)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    settings = new_lake(synapse_dsn=source_copy, lakehouse_retention_enabled=True, lakehouse_as_of=later)
    build_branch(settings)
    return settings, expected


def build_branch(settings: Settings) -> None:
    """Copy the source and build all models on the run's branch."""
    tables.ensure_tables(open_catalog(settings), catalogue.load_catalogue())
    for name in ("snapshot_tables", "resolve_state", "build_models"):
        result = run_app(name, settings, RUN)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.heavy
def test_every_kind_of_damage_is_found_and_explained(damaged_lake: tuple[Settings, set[tuple[str, str]]]) -> None:
    settings, expected = damaged_lake
    with duckdb_reader.open_duckdb(settings) as connection:
        create_branch_views(connection, settings, RUN.branch, ["gold.state_integrity"])
        findings = connection.execute(FINDINGS).fetchall()
        chain_ends = connection.execute("select 1 from gold.state_integrity where subject = '900000300'").fetchall()
    rows = set(findings)
    assert rows >= expected | damage.CONSEQUENCES
    assert {
        (check, subject) for check, subject in rows if check != damage.FOLLOWING_CHECK
    } <= expected | damage.CONSEQUENCES
    # tests/integration/test_seeded_faults.py has a release before the damage; tests/spark/test_check_indexes.py has
    # damaged indexes.
    tested_elsewhere = {"state_group_unreferenced", "state_group_changed", "receipt_without_event"}
    checks = {check.name: check for check in INTEGRITY_CHECKS if not check.name.startswith("index_")}
    planted_checks = {check for check, _ in expected}
    assert planted_checks | tested_elsewhere == {*checks}
    assert len(chain_ends) == 2  # the end of the long chain, which no event needs

    catalog = open_catalog(settings)
    snapshot = catalog.load_table("gold.state_integrity").refs()[RUN.branch].snapshot_id
    validation = validate.validate_gold(settings, catalog, RUN)
    # Bronze was not measured in this test. No measured check stops the release.
    assert ["not measured" in check.observed for check in validation.failures] == [True]
    warned_checks = {check.subject for check in validation.warnings}
    # A check without a warning of its own follows from another check, in the same rooms.
    explained = {name for name in planted_checks if f"check {name}" not in warned_checks}
    assert all(planted_checks & {*checks[name].follows} for name in explained)
    serious_counts = {
        row["check_name"]: row["serious"] for row in store.read_run_rows(catalog, "audit.integrity", RUN.run_id)
    }
    assert serious_counts == {check.name: sum(name == check.name for name, _ in findings) for check in INTEGRITY_CHECKS}

    release = {"release": 1, "tables": [("gold.state_integrity", snapshot)], "positions": [], "views": []}
    now = datetime.now(UTC)
    store.append_audit_rows(catalog, "audit.releases", [release | {"published_at": now, "accepted_at": now}], RUN)
    result = CliRunner().invoke(app, ["doctor", "--deep", "--format", "json"], env=settings.to_environment())
    findings_by_subject = {finding["subject"]: finding for finding in json.loads(result.stdout)}
    assert result.exit_code == 1
    for name, subject in expected:
        assert subject.strip() in findings_by_subject[name]["message"]
        assert findings_by_subject[name]["advice"]
    assert findings_by_subject["state_reset"]["level"] == "FAIL"
    assert findings_by_subject["room_statistics"]["level"] == "WARN"
