"""A backfill that an operator starts in Airflow runs one day after the other, beside a running scheduler."""

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from tests.browser.conftest import Ui, wait_until
from tests.conftest import PublishedLake

pytestmark = pytest.mark.heavy

DAYS = ["2026-11-10", "2026-11-11", "2026-11-12"]
RUNS = "/api/v2/dags/lakehouse/dagRuns?run_type=backfill"


def test_each_day_of_a_backfill_has_equal_content(
    published: PublishedLake, airflow: httpx.Client, ui: Ui, logged_in: Chrome
) -> None:
    catalog = open_catalog(published.settings)
    before = store.read_releases(catalog)
    command = ["backfill", "create", "--dag-id", "lakehouse", "--from-date", DAYS[0], "--to-date", DAYS[-1]]
    result = published.lakehouse("airflow", *command)
    assert result.returncode == 0, result.stdout + result.stderr

    wait_until(lambda: len(list_finished_runs(airflow)) == len(DAYS), runs=len(DAYS))
    assert set(list_finished_runs(airflow)) == {"success"}
    added = store.read_releases(catalog)[len(before) :]
    assert sorted(f"{item.interval_start:%Y-%m-%d}" for item in added) == DAYS
    assert all(bronze(item) == bronze(before[-1]) for item in added), "the source did not change"

    logged_in.get(f"{ui.address}/dags/lakehouse/runs?run_type=backfill")
    WebDriverWait(logged_in, 120).until(
        lambda _: logged_in.find_element(By.TAG_NAME, "body").text.count("backfill__") >= len(DAYS)
    )


def bronze(release: Release) -> dict[str, int]:
    """Return the Iceberg snapshots of the copied tables."""
    return {name: snapshot for name, snapshot in release.tables.items() if name.startswith("bronze.")}


def list_finished_runs(airflow: httpx.Client) -> list[str]:
    """Return the states of the backfill's finished runs."""
    runs = airflow.get(RUNS).raise_for_status().json()["dag_runs"]
    return [run["state"] for run in runs if run["state"] in {"success", "failed"}]
