"""``lakehouse doctor`` checks the settings, the source, the lake, and a database before the first run."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import FORMAT_PROPERTIES
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port
from tests.support.doctor import Examine


def test_a_healthy_database_passes(examine: Examine) -> None:
    code, results = examine()
    assert code == 0
    assert {"Java", "jars", "catalogue", "source", "clock", "role", "schema", "drift", "rights", "disk"} <= set(results)
    assert not [finding for findings in results.values() for finding in findings if finding["level"] == "FAIL"]


def test_missing_writers_are_a_warning(examine: Examine) -> None:
    code, findings = examine(synapse_config=None, lakehouse_stream_writers="events:master")
    (writers,) = findings["stream writers"]
    assert (code, writers["level"], "SYNAPSE_CONFIG" in writers["advice"]) == (0, "WARN", True)
    assert " events" not in writers["message"]


def test_an_unknown_setting_is_reported_with_a_near_name(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_LEASE_SECOND", "5")
    monkeypatch.setenv("SYNAPSE_CONFIG_PATH", "/data/homeserver.yaml")
    _, findings = examine()
    (unknown,) = findings["settings"]
    assert unknown["message"].startswith("LAKEHOUSE_LEASE_SECOND ")
    assert "LAKEHOUSE_LEASE_SECONDS?" in unknown["advice"]


def test_sequences_are_compared_with_positions_and_rows(
    examine: Examine, reader: str, source_copy: str, new_lake: Callable[..., Settings]
) -> None:
    lake = new_lake()
    with open_catalog(lake) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        for name in ("audit.releases", "audit.stream_positions", "audit.leases"):
            catalog.create_table(name, store.AUDIT_SCHEMAS[name], properties=FORMAT_PROPERTIES)
        now = datetime.now(UTC)
        run = Run("run", now - timedelta(days=1), now)
        release = {"release": 1, "tables": [], "positions": [], "views": [], "published_at": now, "accepted_at": now}
        store.append_audit_rows(catalog, "audit.releases", [release], run)
        facts = {"stream": "events", "writers": [("persister1", 4373)], "sequence_last_value": 4413}
        store.append_audit_rows(catalog, "audit.stream_positions",
                     [facts | {"sequence_is_called": True, "measured_at": now}], run)  # fmt: skip
    changes = {"synapse_dsn": reader, "lakehouse_catalog_uri": lake.lakehouse_catalog_uri}
    changes["lakehouse_warehouse"] = lake.lakehouse_warehouse
    _, findings = examine(**changes)
    assert [finding["level"] for finding in findings["sequences"]] == ["OK"]
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("select setval('receipts_sequence', 10)")
        owner.execute("update stream_positions set stream_id = 4300 where instance_name = 'persister1'")
    code, findings = examine(**changes)
    assert code == 1
    messages = [finding["message"] for finding in findings["sequences"]]
    assert "Synapse will refuse to start" in messages[0]
    assert "events: persister1 from 4373 to 4300." in messages[-1]
    assert findings["sequences"][0]["advice"].endswith("select setval('receipts_sequence', 83);")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        assert owner.execute("select last_value from receipts_sequence").fetchone() == (10,)


def test_a_lake_of_another_homeserver_fails(
    examine: Examine, settings: Settings, new_lake: Callable[..., Settings]
) -> None:
    lake = new_lake()
    now = datetime.now(UTC)
    with open_catalog(lake) as catalog:
        tables.ensure_audit_tables(catalog)
        row = {"release": 1, "server_name": "example.org", "tables": [], "positions": [], "views": []}
        row |= {"published_at": now, "accepted_at": now}
        store.append_audit_rows(catalog, "audit.releases", [row], Run("run", now - timedelta(days=1), now))
    changes = {"lakehouse_catalog_uri": lake.lakehouse_catalog_uri, "lakehouse_warehouse": lake.lakehouse_warehouse}
    code, findings = examine(**changes)
    assert (code, findings["homeserver"][0]["level"]) == (1, "FAIL")
    assert (
        f"releases of example.org, but the homeserver to copy is {settings.synapse_server_name}"
        in (findings["homeserver"][0]["message"])
    )


def test_a_server_name_without_its_database_fails(examine: Examine) -> None:
    code, findings = examine(synapse_dsn=None, synapse_server_name="example.org")
    assert (code, findings["source"][0]["level"]) == (1, "FAIL")
    assert "SYNAPSE_DSN is not set" in findings["source"][0]["message"]


@pytest.mark.parametrize(("in_recovery", "level"), [(None, "OK"), (True, "OK"), (False, "FAIL")])
def test_a_standby_s_sequences_may_be_ahead(
    examine: Examine, reader: str, new_lake: Callable[..., Settings], in_recovery: bool | None, level: str
) -> None:
    lake = new_lake()
    with open_catalog(lake) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        for name in ("audit.releases", "audit.stream_positions", "audit.leases", "audit.snapshots"):
            catalog.create_table(name, store.AUDIT_SCHEMAS[name], properties=FORMAT_PROPERTIES)
        now = datetime.now(UTC)
        run = Run("run", now - timedelta(days=1), now)
        release = {"release": 1, "tables": [], "positions": [], "views": [], "published_at": now, "accepted_at": now}
        store.append_audit_rows(catalog, "audit.releases", [release], run)
        facts = {"stream": "events", "writers": [("persister1", 4373)], "sequence_last_value": 4413 + 32}
        store.append_audit_rows(catalog, "audit.stream_positions",
                     [facts | {"sequence_is_called": True, "measured_at": now}], run)  # fmt: skip
        if in_recovery is not None:
            store.append_audit_rows(
                catalog, "audit.snapshots", [{"in_recovery": in_recovery, "began_at": run.start}], run
            )
    changes = {"synapse_dsn": reader, "lakehouse_catalog_uri": lake.lakehouse_catalog_uri}
    _, findings = examine(**changes, lakehouse_warehouse=lake.lakehouse_warehouse)
    assert findings["sequences"][-1]["level"] == level, findings["sequences"]


def test_an_unreachable_source_does_not_stop_other_checks(examine: Examine) -> None:
    code, findings = examine(synapse_dsn=f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/synapse")
    assert (code, findings["source"][0]["level"]) == (1, "FAIL")
    assert "lake" in findings
    assert "secret-word" not in json.dumps(findings)


def test_an_unreachable_catalog_fails(examine: Examine) -> None:
    code, findings = examine(
        lakehouse_catalog_uri=f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/iceberg"
    )
    assert (code, findings["lake"][0]["level"]) == (1, "FAIL")
    assert "secret-word" not in json.dumps(findings)


def test_doctor_creates_nothing_before_the_first_run(examine: Examine, tmp_path: Path) -> None:
    fresh = {"synapse_dsn": None, "synapse_server_name": None, "lakehouse_catalog_uri": None}
    code, findings = examine(**fresh, lakehouse_home=tmp_path / "home", lakehouse_warehouse=None)
    assert (code, findings["set-up"][0]["level"]) == (0, "WARN")
    assert not (tmp_path / "home").exists()


def test_the_source_is_examined_before_the_first_run(examine: Examine, reader: str, tmp_path: Path) -> None:
    fresh = {"lakehouse_catalog_uri": None, "lakehouse_home": tmp_path / "home", "lakehouse_warehouse": None}
    code, findings = examine(**fresh, synapse_dsn=reader)
    assert (code, findings["source"][0]["level"], findings["set-up"][0]["level"]) == (0, "OK", "WARN")
    assert findings["sequences"]
    code, findings = examine(
        **fresh, synapse_dsn=f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/synapse"
    )
    assert (code, findings["source"][0]["level"]) == (1, "FAIL")
    assert not (tmp_path / "home").exists()
