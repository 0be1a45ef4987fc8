"""A compression plan waits for an approval. A rejected plan writes nothing; an approved one is applied and verified."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.browser.conftest import Ui, wait_until
from tests.conftest import PublishedLake, copied_source
from tests.support.state_database import all_states, read_state

pytestmark = pytest.mark.heavy

DAG = "/api/v2/dags/state_compression"
APPROVAL = "taskInstances/approve/-1/hitlDetails"


@pytest.fixture(scope="module")
def synapse(server: EmbeddedServer, sample_dsn: str) -> Iterator[str]:
    """Yield the URI of a copy of the sample, for the compression."""
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def ui_settings(published: PublishedLake, synapse: str) -> Settings:
    compressor_settings = {"lakehouse_compressor_enabled": "true", "lakehouse_compressor_strategy": "best"}
    return published.settings.model_copy(
        update={"synapse_dsn": synapse, "synapse_write_dsn": synapse} | compressor_settings
    )


@pytest.fixture(scope="module", autouse=True)
def _unpause_dag(airflow: httpx.Client) -> None:
    wait_until(lambda: airflow.patch(DAG, json={"is_paused": False}).status_code == 200)


def start_waiting_run(airflow: httpx.Client) -> str:
    """Start a run, wait until it needs an approval, and return its API path."""
    run = airflow.post(f"{DAG}/dagRuns", json={"logical_date": datetime.now(UTC).isoformat()}).json()["dag_run_id"]
    wait_until(lambda: states(airflow, f"{DAG}/dagRuns/{run}").get("approve") == "awaiting_input")
    # If the approval arrives before the end of the task's process is reported, the scheduler treats it as killed.
    time.sleep(10)
    return f"{DAG}/dagRuns/{run}"


def states(airflow: httpx.Client, run: str) -> dict[str, Any]:
    actual = {
        instance["task_id"]: instance["state"]
        for instance in airflow.get(f"{run}/taskInstances").json()["task_instances"]
    }
    assert "failed" not in actual.values(), actual
    return actual


def test_a_rejection_changes_nothing(airflow: httpx.Client, synapse: str) -> None:
    before, run = read_state(synapse), start_waiting_run(airflow)

    airflow.patch(f"{run}/{APPROVAL}", json={"chosen_options": ["Reject"], "params_input": {}}).raise_for_status()

    wait_until(lambda: states(airflow, run).get("verify") == "skipped")
    assert states(airflow, run)["apply"] == "skipped"
    assert read_state(synapse) == before


def test_the_approver_sees_the_plan_first(airflow: httpx.Client, ui: Ui, logged_in: Chrome, synapse: str) -> None:
    before, rows, run = all_states(synapse), read_state(synapse)[1], start_waiting_run(airflow)

    logged_in.get(f"{ui.address}/dags/state_compression/runs/{run.rpartition('/')[2]}/tasks/approve/required_actions")
    wait_until(lambda: logged_in.find_elements(By.XPATH, "//th[text()='Longest chain']"))
    assert "state_groups_state" in logged_in.find_element(By.TAG_NAME, "body").text
    assert read_state(synapse)[1] == rows
    wait_until(lambda: logged_in.find_elements(By.XPATH, "//button[normalize-space()='Approve']"))
    logged_in.find_element(By.XPATH, "//button[normalize-space()='Approve']").click()

    wait_until(lambda: states(airflow, run).get("verify") == "success")
    assert all_states(synapse) == before
    assert sum(map(len, read_state(synapse)[1].values())) < sum(map(len, rows.values()))
