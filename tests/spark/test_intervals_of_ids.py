"""IDs without a time belong to the interval of the run that first read them, whatever the order of runs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams import stream_tables
from synapse_lakehouse.streams.pipeline import measure
from tests.support.incremental_lake import DAY, AdvancingLake, advancing

NAMES = ("receipts_linearized", "stream_positions")
MOVED = "update receipts_linearized set stream_id = nextval('receipts_sequence') where stream_id % 3 = 0"


@dataclass
class DayLake(AdvancingLake):
    """Runs a day, any number of times."""

    day: int = 0

    def app(self) -> SparkApp:
        """The next run's app, for the chosen day."""
        self.runs += 1
        start = DAY + timedelta(days=self.day)
        return SparkApp("test", Run(f"test_{self.runs}", start, start + timedelta(days=1)), self.settings)

    def run_day(self, day: int) -> int:
        """Run a day; receipts in its interval."""
        self.day = day
        app = self.app()
        self.copy(app)
        measure(app).append(app.catalog, app.run)
        self.publish(app)
        (row,) = store.read_run_rows(app.catalog, "audit.stream_facts", app.run.run_id)
        return int(row["rows_in_interval"])


@pytest.mark.parametrize("large", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by what changed", "as a whole"])
def test_an_id_stays_with_the_interval_that_saw_it_first(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large)
    full = catalogue.load_catalogue()
    few = full.model_copy(update={"tables": tuple(map(full.table, NAMES)), "streams": (full.stream("receipts"),)})
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: few)
    with (
        advancing(new_lake(synapse_dsn=source_copy, synapse_config=None)) as started,
        psycopg.connect(source_copy) as source,
    ):
        lake = DayLake(started.settings)
        rows = lake.run_day(3)
        assert rows > 0
        assert lake.run_day(1) == 0
        moved = source.execute(MOVED).rowcount
        source.commit()
        assert 0 < moved < rows
        assert lake.run_day(2) == moved
        assert lake.run_day(1) == 0
        assert lake.run_day(3) == rows - moved
        assert lake.run_day(2) == moved
