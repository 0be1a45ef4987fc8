"""Run ``lakehouse run``, and query the lake that it fills."""

import json

from synapse_lakehouse.config.settings import Settings
from tests.conftest import lakehouse


def run(lake: Settings) -> None:
    """Run the DAG. It must succeed."""
    result = lakehouse(lake, "run")
    assert result.returncode == 0, result.stdout + result.stderr


def query(lake: Settings, sql: str) -> list[dict[str, object]]:
    """Return the rows of a query of the newest release."""
    result = lakehouse(lake, "query", sql, "--format", "json")
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


def list_faults(lake: Settings) -> list[dict[str, object]]:
    """Return the failed checks of all runs, and the damage in the newest release."""
    return [
        *query(lake, "select stage, expectation, subject, observed from audit.checks where not success"),
        *query(lake, "select check_name, subject, expected, found from gold.state_integrity where severity <> 'info'"),
    ]
