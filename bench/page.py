"""Measure the report page and the metrics of 10 million events in 10,000 rooms, and write ``docs/bench-page.md``."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from bench.machine import describe_machine
from bench.report import DOCS, Folder, Table, write_page
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, is_unbranched, open_catalog
from synapse_lakehouse.iceberg.write.tables import ensure_audit_tables
from synapse_lakehouse.local.services import connect_services

EVENTS: Final = 10_000_000
ROOMS: Final = 10_000
GROUPS: Final = 1_000_000
RELATIONS: Final = 300
DAYS: Final = 35
_START: Final = datetime(2026, 10, 1, tzinfo=UTC)

Numbers = NDArray[np.int64]


def main(folder: Folder = DOCS, scale: Annotated[float, typer.Option(help="share of the rows")] = 1.0) -> None:
    """Build the lake of two releases, then write the page, read the metrics, and open the page in Chromium."""
    machine = describe_machine(("duckdb", "altair"))
    home = Settings().lakehouse_home / "bench" / "page"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with connect_services(Settings().model_copy(update={"lakehouse_home": home})) as settings:
        with closing(open_catalog(settings)) as catalog:
            build_lake(catalog, scale)
        page = home / "page.html"
        costs = {
            "lakehouse report": _measure(settings, "report", "--output", str(page)),
            "lakehouse metrics": _measure(settings, "metrics"),
        }
    opening_seconds = measure_opening(page)
    rows = [(command, *cost) for command, cost in costs.items()]
    commands = Table("Commands", ("command", "seconds", "CPU seconds"), rows)
    size = page.stat().st_size / 1e6
    opening = Table("The page", ("size, MB", "seconds until all charts are drawn"), [(size, opening_seconds)])
    write_page("bench-page.md", folder, machine, commands, opening)
    shutil.rmtree(home)


def build_lake(catalog: Catalog, scale: float) -> None:
    """Create the large tables that the page reads, and publish two releases. The second has 0.1% more events."""
    for schema in SCHEMAS:
        catalog.create_namespace(schema)
    ensure_audit_tables(catalog)
    rooms = max(1, int(ROOMS * scale))
    _append(catalog, "silver.rooms", {"room_id": _room_ids(np.arange(rooms)), "name": _room_ids(np.arange(rooms))})
    _append(catalog, "bronze.rooms", {"room_id": _room_ids(np.arange(rooms))})
    groups = np.arange(int(GROUPS * scale))
    constant = {name: pa.array(np.ones_like(groups)) for name in ("delta_rows", "chain_length", "events")}
    _append(catalog, "gold.state_group_sizes", {"room_id": _room_ids(groups % rooms), "state_group": groups} | constant)
    events = int(EVENTS * scale)
    for number, (first, last) in enumerate(((0, events), (events, events + events // 1000)), 1):
        run = Run(f"run_{number}", _START + timedelta(days=number), _START + timedelta(days=number + 1))
        _append_events(catalog, np.arange(first, last), rooms)
        _append_sizes(catalog, run)
        tables = {name: catalog.load_table(name).refs()["main"].snapshot_id for name in _list_tables(catalog)}
        release = {"release": number, "server_name": "example.org", "tables": sorted(tables.items()), "positions": []}
        times = {"published_at": run.end, "accepted_at": run.end}
        store.append_audit_rows(catalog, "audit.releases", [release | times | {"views": [], "checks_passed": 1}], run)


def measure_opening(page: Path) -> float:
    """Return the seconds from the navigation until Chromium has drawn all charts."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    # Without the path, Selenium searches the web for a driver.
    with webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"))) as browser:
        started = time.monotonic()
        browser.get(page.as_uri())
        execute: Callable[[str], object] = browser.execute_script
        WebDriverWait(browser, 120, 0.02).until(lambda _: execute("return document.documentElement.dataset.drawn"))
        return time.monotonic() - started


def _measure(settings: Settings, *arguments: str) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of the command ``lakehouse``."""
    command = [str(Path(sys.executable).with_name("lakehouse")), *arguments]
    before = os.times()
    subprocess.run(
        command, env=os.environ | settings.to_environment(), cwd=settings.lakehouse_home, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return after.elapsed - before.elapsed, cpu


def _append_events(catalog: Catalog, numbers: Numbers, rooms: int) -> None:
    ids, room_ids = pc.cast(pa.array(numbers), pa.string()), _room_ids(numbers % rooms)
    _append(catalog, "bronze.events", {"event_id": ids, "room_id": room_ids})
    types = pa.array([f"type {number}" for number in range(50)]).take(pa.array(numbers % 50))
    received = pa.array(numbers * 500_000 + 1_790_000_000_000_000, pa.timestamp("us", tz="UTC"))
    columns = {
        "event_id": ids, "room_id": room_ids, "type": types, "received_at": received, "json_bytes": numbers % 5_000
    }  # fmt: skip
    _append(catalog, "gold.events", columns)


def _append_sizes(catalog: Catalog, run: Run) -> None:
    rows = [
        {"kind": "table", "schema_name": "public", "name": f"table {relation}", "index_bytes": 9, "live_rows": 9,
         "bytes": 1_000_000 * relation + day, "measured_at": run.end - timedelta(days=day)}
        for relation in range(RELATIONS) for day in range(DAYS)
    ]  # fmt: skip
    store.append_audit_rows(catalog, "audit.relation_sizes", rows, run)


def _append(catalog: Catalog, name: str, columns: dict[str, pa.Array | Numbers]) -> None:
    rows = pa.table(columns)
    catalog.create_table_if_not_exists(name, rows.schema).append(rows)


def _list_tables(catalog: Catalog) -> list[str]:
    names = [".".join(name) for schema in ("bronze", "silver", "gold") for name in catalog.list_tables(schema)]
    return [name for name in names if not is_unbranched(name)]


def _room_ids(numbers: Numbers) -> pa.Array:
    names = pa.array([f"!{number}:example.org" for number in range(int(numbers.max(initial=0)) + 1)])
    return names.take(pa.array(numbers))


if __name__ == "__main__":
    typer.run(main)
