"""A real run on a database that drifted publishes the other tables."""

import json
import re
from collections.abc import Callable

import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from tests.conftest import lakehouse

pytestmark = pytest.mark.heavy


def test_a_drifted_table_is_absent_from_one_release(new_lake: Callable[..., Settings], source_copy: str) -> None:
    settings = new_lake(synapse_dsn=source_copy)
    full = lakehouse(settings, "run")
    assert full.returncode == 0, full.stdout + full.stderr
    (before,) = _rows(settings, "select safe_bound from audit.stream_positions where stream = 'receipts'")
    with psycopg.connect(source_copy, autocommit=True) as source:
        source.execute("alter table receipts_linearized rename column event_id to target")
        source.execute(
            "insert into receipts_linearized"
            " select nextval('receipts_sequence'), 'new-' || stream_id, receipt_type, user_id, target, data,"
            " instance_name"
            " from receipts_linearized limit 5"
        )
        source.execute(
            "update stream_positions set stream_id = (select last_value from receipts_sequence)"
            " where stream_name = 'receipts'"
        )

    refused = lakehouse(settings, "run")
    assert refused.returncode == 1
    assert re.search(r"receipts_linearized .*event_id", refused.stdout + refused.stderr)

    partial = lakehouse(settings.model_copy(update={"lakehouse_on_drift": "partial"}), "run")
    assert partial.returncode == 0, partial.stdout + partial.stderr
    assert "left as before: receipts_linearized" in partial.stdout
    assert "0 failed" in partial.stdout
    latest = "select release, partial from audit.releases order by release desc limit 1"
    assert _rows(settings, latest) == [{"release": 2, "partial": ["receipts_linearized"]}]
    positions = (
        "select safe_bound, rule from audit.stream_positions join audit.releases using (run_id) where release = 2"
    )
    assert _rows(settings, f"{positions} and stream = 'receipts'") == [before | {"rule": "not_copied"}]

    with psycopg.connect(source_copy, autocommit=True) as source:
        source.execute("alter table receipts_linearized rename column target to event_id")
    repaired = lakehouse(settings, "run")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert _rows(settings, latest) == [{"release": 3, "partial": []}]
    assert (
        _rows(settings, "select count(*) as n from bronze.receipts_linearized where room_id like 'new-%'")[0]["n"] == 5
    )


def _rows(settings: Settings, query: str) -> list[dict[str, object]]:
    result = lakehouse(settings, "query", query, "--format", "json")
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows
