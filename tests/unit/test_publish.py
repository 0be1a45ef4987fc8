"""A release requires that the checks of the last validation of each stage passed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import ReleaseError
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.write.publish import require_audits_passed

DAY = datetime(2026, 11, 18, tzinfo=UTC)
RUN = Run("scheduled__1", DAY, DAY + timedelta(days=1))
BOUND = {"subject": "stream events", "expectation": "the safe bound did not go back"}
KEYS = {"subject": "bronze.rooms", "expectation": "every key occurs once"}


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    catalog = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    catalog.create_namespace("audit")
    for name in ("audit.snapshots", "audit.checks"):
        catalog.create_table(name, schema=store.AUDIT_SCHEMAS[name])
    return catalog


def record_checks(lake: Catalog, stage: str, hour: int, *checks: dict[str, Any]) -> None:
    defaults = {"stage": stage, "suite": stage, "severity": "fail", "success": True, "observed": ""}
    moment = {"checked_at": DAY + timedelta(hours=hour)}
    store.append_audit_rows(lake, "audit.checks", [defaults | moment | check for check in checks], RUN)


def test_only_checks_of_the_last_validation_block(lake: Catalog) -> None:
    record_checks(lake, "bronze", 1, KEYS, BOUND | {"success": False})
    with pytest.raises(ReleaseError, match=r"scheduled__1 .*gold"):
        require_audits_passed(lake, RUN)
    record_checks(lake, "gold", 2, KEYS)
    with pytest.raises(ReleaseError, match="1 checks of run scheduled__1 failed"):
        require_audits_passed(lake, RUN)

    record_checks(lake, "bronze", 3, KEYS)

    assert require_audits_passed(lake, RUN) == (2, 0)


def test_a_later_validation_that_fails_blocks(lake: Catalog) -> None:
    record_checks(lake, "bronze", 1, KEYS, BOUND | {"severity": "warn", "success": False})
    record_checks(lake, "gold", 2, KEYS)
    assert require_audits_passed(lake, RUN) == (2, 1)

    record_checks(lake, "gold", 3, KEYS | {"success": False})

    with pytest.raises(ReleaseError, match=r"failed, the first on bronze\.rooms"):
        require_audits_passed(lake, RUN)
