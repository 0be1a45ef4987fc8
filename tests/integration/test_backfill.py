"""Days that run late, out of order and twice have the same content and slices as days in order."""

import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import lakehouse

pytestmark = pytest.mark.heavy

TODAY = datetime.now(UTC).date()
SPREAD = f"""
update events set received_ts = 1000 * extract(epoch from timestamptz '{TODAY} 12:00Z')::bigint
                                - 86400000 * (1 + abs(stream_ordering) % 3)
"""
LATE = "update receipts_linearized set stream_id = nextval('receipts_sequence') where stream_id % 3 = 0"

Slices = dict[tuple[str, str], int]


def test_days_in_any_order_and_twice_have_equal_content(
    server: EmbeddedServer, new_lake: Callable[..., Settings], source_copy: str
) -> None:
    server.tool("createdb", "--template", sample.SAMPLE_DATABASE, "backfilled_source")
    for dsn in (source_copy, server.dsn("backfilled_source")):
        _spread_over_days(dsn)
    ordered, backfilled = new_lake(synapse_dsn=source_copy), new_lake(synapse_dsn=server.dsn("backfilled_source"))
    days = [str(TODAY - timedelta(days=ago)) for ago in (3, 2, 1)]
    in_order = {day: _run_day(ordered, day) for day in days}

    first, second, third = days
    out_of_order = {day: _run_day(backfilled, day) for day in (third, first, second)}
    with_time = {(stream.name, table.name) for stream, table in _list_backing_tables() if _has_time(table)}
    for day in days:
        assert {item: out_of_order[day][item] for item in with_time} == {
            item: in_order[day][item] for item in with_time
        }
    # IDs without a time belong to the first run that read them: once, in either order.
    for slices in (in_order, out_of_order):
        run_counts = Counter(
            item for day in days for item in slices[day] if item not in with_time and slices[day][item]
        )
        assert set(run_counts.values()) == {1}
    assert {item: out_of_order[third][item] for item in in_order[first].keys() - with_time} == {
        item: in_order[first][item] for item in in_order[first].keys() - with_time
    }

    # A rerun of a day contains no rows that the run of a different day has already read.
    for dsn in (source_copy, server.dsn("backfilled_source")):
        with psycopg.connect(dsn) as source:
            source.execute(LATE)
    moved = _run_day(ordered, third)[("receipts", "receipts_linearized")]
    assert moved > 0
    assert _run_day(backfilled, second)[("receipts", "receipts_linearized")] == moved
    assert _run_day(backfilled, first) == out_of_order[first]
    assert _run_day(backfilled, second)[("receipts", "receipts_linearized")] == moved
    assert _read_content(backfilled) == _read_content(ordered)
    server.tool("dropdb", "--force", "backfilled_source")


def _spread_over_days(dsn: str) -> None:
    with psycopg.connect(dsn) as source:
        source.execute(SPREAD.encode())


def _run_day(settings: Settings, day: str) -> Slices:
    """Run the day, and return the number of rows in its interval by stream and table."""
    result: subprocess.CompletedProcess[str] = lakehouse(settings, "run", "--date", day)
    assert result.returncode == 0, result.stdout + result.stderr
    catalog = open_catalog(settings)
    latest = store.read_releases(catalog)[-1]
    assert f"{latest.interval_start:%Y-%m-%d}" == day
    facts = store.read_run_rows(catalog, "audit.stream_facts", latest.run_id)
    return {(row["stream"], row["table_name"]): row["rows_in_interval"] for row in facts}


def _has_time(table: catalogue.Table) -> bool:
    return "received_ts" in {column.name for column in table.columns}


def _list_backing_tables() -> list[tuple[catalogue.Stream, catalogue.Table]]:
    declared = catalogue.load_catalogue()
    return [(stream, table) for stream in declared.streams for table, _ in declared.backing_tables(stream.name)]


def _read_content(settings: Settings) -> dict[str, Counter[str]]:
    with duckdb_reader.open_duckdb(settings) as lake:
        release = duckdb_reader.get_release(lake, settings)
        duckdb_reader.create_views(lake, settings, release, release.tables)
        names = sorted(name for name in release.tables if name.startswith(("bronze.", "gold.")))
        # Lists, such as the previous events of an event, are not hashable.
        return {name: Counter(map(repr, lake.execute(f"select * from {name}").fetchall())) for name in names}
