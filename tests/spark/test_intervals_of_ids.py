"""IDs without a time belong to the interval of the run that first read them, in any order of runs."""

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
from tests.support.incremental_lake import DAY, IncrementalLake, open_incremental_lake

NAMES = ("receipts_linearized", "stream_positions")
MOVE_RECEIPTS = "update receipts_linearized set stream_id = nextval('receipts_sequence') where stream_id % 3 = 0"


@dataclass
class DayLake(IncrementalLake):
    """A lake whose runs have the data interval of a chosen day."""

    day: int = 0

    def next_run_app(self) -> SparkApp:
        """Return the next run's app, for the chosen day."""
        self.runs += 1
        start = DAY + timedelta(days=self.day)
        return SparkApp("test", Run(f"test_{self.runs}", start, start + timedelta(days=1)), self.settings)

    def run_day(self, day: int) -> int:
        """Run a day, and return the number of receipts in its interval."""
        self.day = day
        app = self.next_run_app()
        self.copy(app)
        measure(app).append(app.catalog, app.run)
        self.publish(app)
        (row,) = store.read_run_rows(app.catalog, "audit.stream_facts", app.run.run_id)
        return int(row["rows_in_interval"])


@pytest.mark.parametrize("large_table_rows", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by changes", "as a whole"])
def test_an_id_stays_in_the_interval_that_first_read_it(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch, large_table_rows: int
) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large_table_rows)
    declared = catalogue.load_catalogue()
    small_catalogue = declared.model_copy(
        update={"tables": tuple(map(declared.table, NAMES)), "streams": (declared.stream("receipts"),)}
    )
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: small_catalogue)
    with (
        open_incremental_lake(new_lake(synapse_dsn=source_copy, synapse_config=None)) as incremental,
        psycopg.connect(source_copy) as source,
    ):
        lake = DayLake(incremental.settings)
        rows = lake.run_day(3)
        assert rows > 0
        assert lake.run_day(1) == 0
        moved_rows = source.execute(MOVE_RECEIPTS).rowcount
        source.commit()
        assert 0 < moved_rows < rows
        assert lake.run_day(2) == moved_rows
        assert lake.run_day(1) == 0
        assert lake.run_day(3) == rows - moved_rows
        assert lake.run_day(2) == moved_rows
