"""Fixtures: Airflow as ``make ui`` starts it, on a published lake, and a browser."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port
from tests.conftest import BIN, PublishedLake, environment

# The tests need no scheduled runs, which would take longer than all of these tests.
NO_SCHEDULED_RUNS = {"AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False"}
STOP_SECONDS = 60
LOAD_SECONDS = 120
RUN_SECONDS = 600


@dataclass(frozen=True)
class Ui:
    """A running ``lakehouse ui``: its address, its process, and the home that its children's environment names."""

    address: str
    process: subprocess.Popen[str]
    home: Path

    def processes(self) -> list[int]:
        """Return the IDs of the live processes of this Airflow."""
        marker = f"AIRFLOW_HOME={self.home / 'airflow'}\0".encode()
        return [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and marker in _environ(entry)
        ]

    def credential(self) -> dict[str, str]:
        """Return the username and the password of the login."""
        ((username, password),) = json.loads((self.home / "airflow" / "passwords.json").read_text()).items()
        return {"username": username, "password": password}

    def interrupt(self) -> int:
        """Send SIGINT, as Ctrl-C does, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=STOP_SECONDS)


@pytest.fixture(scope="module")
def ui_settings(published: PublishedLake) -> Settings:
    """Return the settings of ``lakehouse ui``."""
    return published.settings


@pytest.fixture(scope="module")
def ui(ui_settings: Settings) -> Iterator[Ui]:
    """Yield a ready ``lakehouse ui`` on a free port."""
    process = subprocess.Popen(
        [BIN / "lakehouse", "ui", "--port", str(find_free_port())],
        env=environment(ui_settings) | NO_SCHEDULED_RUNS, cwd=ui_settings.lakehouse_home,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if address := re.search(r"Airflow is at (http://127\.0\.0\.1:\d+)", line):
            break
    else:
        pytest.fail("".join(lines))
    ui = Ui(address[1], process, ui_settings.lakehouse_home)
    yield ui
    if process.poll() is None:
        ui.interrupt()
    process.stdout.close()


@pytest.fixture(scope="module")
def airflow(ui: Ui) -> Iterator[httpx.Client]:
    """Yield a client of Airflow's API that is logged in."""
    with httpx.Client(base_url=ui.address, timeout=60) as client:
        token = client.post("/auth/token", json=ui.credential()).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def wait_until(condition: Callable[[], object], runs: int = 1) -> None:
    """Wait until the condition is true, for the time of at most ``runs`` runs."""
    deadline = time.monotonic() + runs * RUN_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(1)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Yield a headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1500,1100"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def logged_in(ui: Ui, browser: webdriver.Chrome) -> webdriver.Chrome:
    """Return the browser after a login. Every page redirects to Airflow's login form."""
    browser.get(f"{ui.address}/dags")
    WebDriverWait(browser, LOAD_SECONDS).until(lambda _: browser.find_elements(By.NAME, "password"))
    assert "/auth/login" in browser.current_url
    for field, value in ui.credential().items():
        browser.find_element(By.NAME, field).send_keys(value)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    WebDriverWait(browser, LOAD_SECONDS).until(lambda _: browser.current_url == f"{ui.address}/dags")
    return browser


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
