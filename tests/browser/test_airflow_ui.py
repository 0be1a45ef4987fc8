"""The main DAG in Airflow's pages, access without a login, and the end of all processes after Ctrl-C."""

from collections.abc import Callable

import httpx
import psutil
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import LOAD_SECONDS, Ui
from tests.conftest import PublishedLake

PATHS = (
    "/", "/dags/lakehouse", "/auth/login", "/auth/token", "/auth/token/cli", "/api/v2/monitor/health", "/api/v2/dags",
    "/api/v2/version", "/execution/health", "/execution/variables/x", "/ui/config", "/openapi.json", "/static/x",
)  # fmt: skip
PUBLIC_PATHS = {
    "/", "/dags/lakehouse", "/auth/login", "/auth/token/cli", "/api/v2/monitor/health", "/api/v2/version",
    "/execution/health", "/openapi.json",
}  # fmt: skip
"""Paths without a login: the pages' empty frame, the login form, health, version and the API's description."""


@pytest.fixture
def page(ui: Ui, logged_in: Chrome) -> Callable[..., str]:
    """Return a function that opens a path, waits until the page contains all words, and returns the page's text."""

    browser = logged_in

    def text() -> str:
        return browser.find_element(By.TAG_NAME, "body").text

    def open_(path: str | None, *words: str) -> str:
        if path:
            browser.get(ui.address + path)
        WebDriverWait(browser, LOAD_SECONDS).until(
            lambda _: all(word in text() for word in words), f"{words} in {path}"
        )
        return text()

    return open_


def click(browser: Chrome, selector: str) -> None:
    """Wait for the element that matches ``selector``, and click it."""
    WebDriverWait(browser, LOAD_SECONDS).until(lambda _: browser.find_elements(By.CSS_SELECTOR, selector), selector)
    browser.find_element(By.CSS_SELECTOR, selector).click()


def test_all_services_are_healthy(page: Callable[..., str]) -> None:
    page("/", "MetaDatabase", "Scheduler", "Triggerer", "Dag Processor")


def test_the_grid_shows_a_green_run(page: Callable[..., str], browser: Chrome) -> None:
    page(
        "/dags/lakehouse",
        "Synapse lakehouse",
        "Bronze",
        "Audit of bronze",
        "Silver and gold",
        "Publish",
        "Close the run",
    )
    page("/dags/lakehouse/runs?state=success", "manual__", "Success")


def test_the_documentation_answers_an_operator(page: Callable[..., str], browser: Chrome) -> None:
    page("/dags/lakehouse", "Synapse lakehouse")
    click(browser, "button[aria-label='Dag Docs']")
    page(None, "What it does", "When it fails", "Is a rerun safe?")


def test_the_form_explains_its_params(page: Callable[..., str], browser: Chrome) -> None:
    page("/dags/lakehouse", "Synapse lakehouse")
    click(browser, "button[aria-label='Trigger Dag']")
    page(None, "Rehearse", "Fail on warnings", "Backfill")


def test_assets_are_the_published_tables(page: Callable[..., str]) -> None:
    page("/assets?name_pattern=gold.events", "gold.events", "2 Tasks")
    page("/assets?name_pattern=release", "release", "2 Tasks")


@pytest.mark.parametrize("host", ["stranger.invalid", "127.0.0.1.stranger.invalid"])
def test_requests_for_another_host_are_refused(ui: Ui, host: str) -> None:
    with httpx.Client(base_url=ui.address, headers={"Host": host}, timeout=60) as client:
        statuses = {
            (method, path): client.request(method, path, json=ui.credential()).status_code
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
            for path in PATHS
        }
    assert set(statuses.values()) == {400}


def test_a_session_needs_the_password(ui: Ui) -> None:
    name = ui.credential()["username"]
    with httpx.Client(base_url=ui.address, timeout=60) as client:
        statuses = {path: client.get(path).status_code for path in PATHS}
        tokens = [
            client.post(f"/auth/{kind}", json={"username": name, "password": password}).status_code
            for kind in ("token", "token/cli")
            for password in ("", name, "null")
        ]
    assert {path for path, status in statuses.items() if status == 200} == PUBLIC_PATHS
    assert {status for path, status in statuses.items() if path not in PUBLIC_PATHS} <= {401, 403, 404, 405}
    assert set(tokens) <= {400, 401}


def test_no_service_has_another_port(ui: Ui) -> None:
    services = [item for item in psutil.Process(ui.process.pid).children(recursive=True) if item.name() != "postgres"]
    addresses = {
        f"http://{connection.laddr.ip}:{connection.laddr.port}"
        for service in services
        for connection in service.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(services) >= 4
    assert addresses == {ui.address}


def test_a_used_port_is_named(ui: Ui, published: PublishedLake) -> None:
    port = ui.address.rpartition(":")[2]
    result = published.lakehouse("ui", "--port", port)
    assert result.returncode == 1
    assert f"Port {port} on 127.0.0.1 cannot be used" in result.stderr
    assert f"--port {int(port) + 1}" in result.stderr


def test_ctrl_c_leaves_no_process_behind(ui: Ui) -> None:
    assert len(ui.processes()) >= 4
    assert ui.interrupt() == 0
    assert ui.processes() == []
