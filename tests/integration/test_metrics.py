"""Metrics of a lake with planted audit rows, without a run."""

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind, compute_incident_events
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.metrics.families import MAX_RELATIONS
from synapse_lakehouse.orchestration.metrics_tasks import write_metrics
from tests.conftest import use_settings
from tests.support.prometheus import read_textfiles

RUN = Run("scheduled__1", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
BEGIN = datetime(2026, 11, 18, 0, 1, tzinfo=UTC)
PREFIX = "synapse_lakehouse_"
HOSTILE = 'ta"ble\\\n{} 😀'
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def after(seconds: int) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


PUBLISHED: list[tuple[str, dict[str, Any]]] = [
    ("audit.snapshots", {"began_at": after(0)}),
    ("audit.ledger", {
        "table_name": "events", "rows_source": 10, "rows_read": 4, "rows_written": 3, "written_at": after(20),
    }),
    ("audit.ledger", {
        "table_name": "rooms", "rows_source": 2, "rows_read": 2, "rows_written": 2, "written_at": after(30),
    }),
    ("audit.stream_positions", {
        "stream": "events", "safe_bound": 90, "sequence_last_value": 100, "sequence_is_called": True,
        "missing_writers": ["b"], "writers": [("a", 90)], "gaps": [("purged", 7)], "measured_at": after(50),
        "rule": "configured",
    }),
    ("audit.stream_positions", {
        "stream": "backfill", "safe_bound": -3, "sequence_last_value": 5, "sequence_is_called": False,
        "writers": [], "gaps": [], "missing_writers": [], "measured_at": after(50),
    }),
    ("audit.checks", {"stage": "bronze", "suite": "s", "expectation": "e", "subject": "x", "checked_at": after(60)}),
    ("audit.views", {"view_name": "gold.x", "sql": "select 1", "tried_at": after(160)}),
    ("audit.checks", {"stage": "gold", "suite": "s", "expectation": "e", "subject": "x", "checked_at": after(170)}),
    *(("audit.integrity", {
        "check_name": name, "findings": 5, "serious": 3, "new_findings": new_findings, "counted_at": after(170),
    }) for name, new_findings in (("lost_events", 1), ("event_missing", 2))),
    ("audit.releases", {
        "release": 7, "server_name": "example.org", "tables": [], "positions": [], "views": [], "checks_passed": 40,
        "checks_warned": 2, "published_at": after(180), "accepted_at": after(180), "partial": ["rooms"],
    }),
    # A row of a later, unpublished try.
    ("audit.ledger", {"table_name": "events", "rows_read": 99, "written_at": after(500)}),
]  # fmt: skip


@pytest.fixture
def lake(new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Return a lake with empty audit tables."""
    settings = new_lake(synapse_dsn="postgresql://127.0.0.1:1/none", synapse_server_name="example.org")
    use_settings(settings, monkeypatch)
    monkeypatch.chdir(tmp_path)
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
    return settings


def plant(settings: Settings, rows: list[tuple[str, dict[str, Any]]], run: Run | None = RUN) -> None:
    with closing(open_catalog(settings)) as catalog:
        for table, row in rows:
            store.append_audit_rows(catalog, table, [row], run)


def print_metrics() -> str:
    result = CliRunner().invoke(app, ["metrics"])
    assert result.exit_code == 0, result.output
    promtool = subprocess.run(
        ["promtool", "check", "metrics"], input=result.stdout, text=True, capture_output=True, check=False
    )
    assert promtool.returncode == 0, promtool.stderr
    return result.stdout


def values(text: str, server_name: str = "example.org") -> Values:
    """Return the samples of a homeserver by name and labels, without the label that names the homeserver."""
    return {
        (sample.name.removeprefix(PREFIX), tuple(sorted(sample.labels.items() - {("server_name", server_name)}))):
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("server_name") == server_name
    }  # fmt: skip


def test_an_empty_lake_has_release_zero_and_no_incidents(lake: Settings) -> None:
    before = time.time()
    metrics = values(print_metrics())
    assert metrics["release_number", ()] == 0
    assert before <= metrics["metrics_timestamp_seconds", ()] <= time.time()
    expected_names = {"release_number", "release_overdue_after_seconds", "metrics_timestamp_seconds", "incidents_open"}
    assert {name for name, _ in metrics} == expected_names
    assert {value for (name, _), value in metrics.items() if name == "incidents_open"} == {0}


@pytest.mark.parametrize(("schedule", "hours"), [("@hourly", 3), ("@weekly", 7 * 24 + 2), ("0 1 * * 1-5", 3 * 24 + 2)])
def test_the_schedule_sets_the_limit_of_a_releases_age(
    lake: Settings, monkeypatch: pytest.MonkeyPatch, schedule: str, hours: int
) -> None:
    monkeypatch.setenv("LAKEHOUSE_SCHEDULE", schedule)
    assert values(print_metrics())["release_overdue_after_seconds", ()] == hours * 3600


def test_every_sample_names_its_homeserver(lake: Settings) -> None:
    plant(lake, PUBLISHED)
    samples = [line for line in print_metrics().splitlines() if not line.startswith("#")]
    assert samples
    assert [line for line in samples if 'server_name="example.org"' not in line] == []


def test_node_exporter_serves_all_homeservers(lake: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "textfiles"
    folder.mkdir()
    names = ("one.example", "two.example", None)
    for name in names:
        changes = {"lakehouse_metrics_file": folder / f"{name}.prom", "synapse_server_name": name}
        write_metrics(lake.model_copy(update=changes))
    twin = {"lakehouse_metrics_file": folder / "twin.prom", "lakehouse_homeserver": "twin"}
    write_metrics(lake.model_copy(update=twin | {"synapse_server_name": "one.example"}))
    text = read_textfiles(folder)
    assert [values(text, name or "").get(("release_number", ())) for name in names] == [0, 0, 0]
    assert values(text, "one.example").get(("release_number", (("homeserver", "twin"),))) == 0
    assert "node_textfile_scrape_error 0" in text


def test_the_newest_release_and_its_run_are_measured(lake: Settings) -> None:
    plant(lake, PUBLISHED)
    metrics = values(print_metrics())
    expected = {
        ("release_number", ()): 7,
        ("release_timestamp_seconds", ()): after(180).timestamp(),
        ("release_checks", (("result", "warned"),)): 2,
        ("release_partial_tables", ()): 1,
        ("run_rows_source", ()): 12,
        ("run_rows_read", ()): 6,
        ("run_rows_written", ()): 5,
        ("stream_safe_bound", (("stream", "events"),)): 90,
        ("stream_bound_is_provisional", (("stream", "events"),)): 0,
        ("stream_last_allocated_id", (("stream", "events"),)): 100,
        ("stream_open_ids", (("stream", "events"),)): 10,
        ("stream_open_ids", (("stream", "backfill"),)): 1,
        ("stream_missing_writers", (("stream", "events"),)): 1,
        ("stream_writer_position", (("stream", "events"), ("writer", "a"))): 90,
        ("stream_gap_ids", (("class", "purged"), ("stream", "events"))): 7,
        ("integrity_findings", (("check", "lost_events"),)): 5,
        ("integrity_serious_findings", (("check", "lost_events"),)): 3,
        ("integrity_new_findings", (("check", "lost_events"), ("kind", "integrity"), ("severity", "warning"))): 1,
        ("integrity_new_findings", (("check", "event_missing"), ("kind", "data-loss"), ("severity", "error"))): 2,
    }
    assert {key: metrics.get(key) for key in expected} == expected
    durations = {
        labels[0][1]: value for (name, labels), value in metrics.items() if name == "run_task_duration_seconds"
    }
    assert durations == {
        "snapshot_tables": 30, "measure_streams": 20, "validate_bronze": 10, "dbt_build": 100, "validate_gold": 10,
        "publish_release": 10,
    }  # fmt: skip


def test_a_newer_observation_replaces_positions_of_the_release(lake: Settings) -> None:
    now = datetime.now(UTC)
    observation = {
        "stream": "events", "watched_at": now, "writers": [("a", 190)], "missing_writers": [], "safe_bound": 190,
        "last_allocated_id": 200, "open_since": now - timedelta(hours=2), "vanished_writers": [], "rule": "provisional",
    }  # fmt: skip
    plant(lake, PUBLISHED)
    plant(lake, [("audit.stream_watch", observation)], None)
    metrics = values(print_metrics())
    events = (("stream", "events"),)
    assert metrics["stream_safe_bound", events] == 190
    assert metrics["stream_bound_is_provisional", events] == 1
    assert metrics["stream_open_ids", events] == 10
    assert metrics["stream_observed_timestamp_seconds", events] == pytest.approx(now.timestamp())
    assert metrics["stream_open_since_timestamp_seconds", events] == pytest.approx(now.timestamp() - 7200)
    assert metrics["stream_gap_ids", (("class", "purged"), *events)] == 7


def test_sizes_have_bounded_labels_and_escaped_names(lake: Settings) -> None:
    now = datetime.now(UTC)
    sizes = [
        {"kind": "table", "schema_name": "public", "name": f"t{index}", "bytes": 1000 + index, "measured_at": now}
        for index in range(MAX_RELATIONS + 5)
    ]
    sizes += [
        {"kind": "table", "schema_name": "public", "name": HOSTILE, "bytes": 10**9, "measured_at": now},
        {"kind": "database", "name": "synapse", "bytes": 10**10, "measured_at": now},
        {"kind": "replication_slot", "name": "standby", "bytes": 16, "measured_at": now},
        {"kind": "lake", "name": "warehouse", "bytes": 5, "free_bytes": 6, "measured_at": now},
    ]
    with closing(open_catalog(lake)) as catalog:
        store.append_audit_rows(catalog, "audit.relation_sizes", sizes, RUN)
    metrics = values(print_metrics())
    relations = {labels: value for (name, labels), value in metrics.items() if name == "relation_size_bytes"}
    assert len(relations) == MAX_RELATIONS
    assert relations[("relation", HOSTILE), ("schema", "public")] == 10**9
    assert metrics["other_relations_size_bytes", ()] == sum(1000 + index for index in range(6))
    assert metrics["disk_used_bytes", (("disk", "source"),)] == 10**10
    assert metrics["disk_free_bytes", (("disk", "lake"),)] == 6
    assert metrics["replication_slot_held_bytes", (("slot", "standby"),)] == 16


def test_open_incidents_are_counted_once_without_their_subject(lake: Settings) -> None:
    finding = AlertFinding(IncidentKind.LOST_IDS, "secret subject", "secret description")
    ended = AlertFinding(IncidentKind.TAP_SILENT, "tap", "silent")
    with closing(open_catalog(lake)) as catalog:
        for scope in ("bronze", "gold"):
            events = compute_incident_events([], [finding, ended], scope, "", BEGIN)
            later = compute_incident_events(events, [finding], scope, "", after(5))
            incident_log.append_events(catalog, [*events, *later])
    text = print_metrics()
    metrics = values(text)
    assert metrics["incidents_open", (("kind", "lost-ids"), ("severity", "error"))] == 1
    assert metrics["incidents_open", (("kind", "tap-silent"), ("severity", "warning"))] == 0
    assert "secret" not in text


def test_an_incident_of_a_later_version_is_counted(lake: Settings) -> None:
    later = {"id": "1", "at": BEGIN, "scope": "bronze", "kind": "later-kind", "subject": "x", "begins": True}
    plant(lake, [("audit.incidents", later)], None)
    assert values(print_metrics())["incidents_open", (("kind", "later-kind"), ("severity", "error"))] == 1
    with closing(open_catalog(lake)) as catalog:
        (event,) = incident_log.read_incident_log(catalog).events
        (end,) = compute_incident_events([event], [], "bronze", "", after(5))
        incident_log.append_events(catalog, [end])
    assert values(print_metrics()).get(("incidents_open", (("kind", "later-kind"), ("severity", "error")))) in {None, 0}


def test_federation_is_measured_without_names_of_servers(lake: Settings) -> None:
    hours = [
        {"server": server, "hour": BEGIN - timedelta(hours=hour), "median_ms": delay}
        for server, hour, delay in (("192.0.2.7", 0, 1000), ("b.example", 1, 3000), ("b.example", 30, 9000))
    ]
    silent = [{"server": "192.0.2.8", "last_hour": BEGIN}]
    columns = {"hour": pa.timestamp("us", tz="UTC"), "last_hour": pa.timestamp("us", tz="UTC"), "median_ms": pa.int64()}
    snapshots = []
    with closing(open_catalog(lake)) as catalog:
        catalog.create_namespace_if_not_exists("gold")
        for name, rows in (("gold.federation_delay", hours), ("gold.silent_servers", silent)):
            schema = pa.schema([(column, columns.get(column, pa.string())) for column in rows[0]])
            table = catalog.create_table(name, schema=schema)
            table.append(pa.Table.from_pylist(rows, schema=schema))
            snapshots.append((name, table.metadata.current_snapshot_id))
    (*_, (_, release), _) = PUBLISHED
    plant(lake, [("audit.releases", release | {"tables": snapshots})])
    text = print_metrics()
    metrics = values(text)
    assert metrics["federation_servers", ()] == 2
    assert metrics["federation_delay_seconds", ()] == 2
    assert metrics["federation_silent_servers", ()] == 1
    assert "192.0.2" not in text


def test_the_file_is_replaced_and_readable_for_all(lake: Settings, tmp_path: Path) -> None:
    path = tmp_path / "lakehouse.prom"
    path.write_text("old")
    plant(lake, PUBLISHED)
    write_metrics(lake.model_copy(update={"lakehouse_metrics_file": path}))
    assert values(path.read_text())["release_number", ()] == 7
    assert path.stat().st_mode & 0o777 == 0o644
    assert [item.name for item in tmp_path.iterdir() if "prom" in item.name] == ["lakehouse.prom"]
    # A missing folder does not fail the task that writes the file.
    write_metrics(lake.model_copy(update={"lakehouse_metrics_file": tmp_path / "missing" / "lakehouse.prom"}))


def test_alert_rules_fire_when_they_should() -> None:
    monitoring = PROJECT_FOLDER / "docker" / "monitoring"
    subprocess.run(["promtool", "test", "rules", monitoring / "alerts_test.yaml"], check=True)
    subprocess.run(["promtool", "check", "config", "--syntax-only", monitoring / "prometheus.yaml"], check=True)


def test_dashboards_are_those_of_the_code() -> None:
    from docker.monitoring.dashboards import build_dashboards

    for path, content in build_dashboards().items():
        assert json.loads(path.read_text()) == json.loads(content), "run `make dashboards`"
