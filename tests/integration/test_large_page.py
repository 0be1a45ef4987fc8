"""The page of ten million events is written in time, and is small."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.report import page
from tests.support.report_lake import TABLES, TEXTS, open_report_lake, publish


@pytest.mark.heavy
def test_ten_million_events_take_twenty_seconds(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    settings, events, rooms = new_lake(), 10_000_000, 10_000
    with open_report_lake(settings) as catalog:
        publish(catalog, 1, TEXTS)
        numbers = np.arange(events)
        columns = {
            "event_id": pc.cast(pa.array(numbers), pa.string()),
            "room_id": pa.array([f"!{number}:example.org" for number in range(rooms)]).take(pa.array(numbers % rooms)),
            "type": pa.array([f"type {number}" for number in range(50)]).take(pa.array(numbers % 50)),
            "received_at": pa.array(numbers * 600_000 + 1_788_000_000_000_000, pa.timestamp("us", tz="UTC")),
            "json_bytes": pa.array(numbers % 5_000),
        }
        for name in ("gold.events", "bronze.events"):
            schema = TABLES[name]
            catalog.load_table(name).append(pa.table({name: columns[name] for name in schema.names}, schema=schema))
        publish(catalog, 2, TEXTS)
    # Other tests share the machine, so the test measures the CPU seconds of all threads.
    started_at = time.process_time()
    with duckdb_reader.open_duckdb(settings) as connection:
        html = page.write_page(connection, settings, tmp_path / "page.html").read_text(encoding="utf-8")
    seconds = time.process_time() - started_at
    print(f"{seconds:.1f} s, {len(html.encode()):,} bytes")
    assert seconds < 20
    assert len(html.encode()) < 5_000_000
