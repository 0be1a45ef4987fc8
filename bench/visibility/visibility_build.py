"""Build room state and visibility of the lake in a separate Spark app."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from duckdb import DuckDBPyConnection

from bench import spark_runs
from bench.visibility.build_costs import ModelTimes
from bench.visibility.command_times import CommandExample
from bench.visibility.synthetic_bronze import SERVER_NAME
from sample import visibility_answers
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build import project
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.sql_text import find_table_names, quote_literal
from synapse_lakehouse.iceberg.write.branches import load_run_tables
from synapse_lakehouse.iceberg.write.publish import append_release, fast_forward_main
from synapse_lakehouse.room_state.resolve import resolve_rooms
from synapse_lakehouse.spark_app import SparkApp

VIEW: Final = "gold.event_visibility"
_RELEASED: Final = ("event_visibility", "events", "state_at_event", "current_rooms")
"""Models that the commands read."""
INTEGRITY: Final = ("path:models/integrity", "state_integrity")
"""Models that check Synapse's database."""
PAGE: Final = ("path:models/gold/federation", "room_cleanup_rows", "room_cleanup", "reports")
"""Models that only the page reads."""
_WITH_PARENTS: Final = (f"+{VIEW.partition('.')[2]}", "+state_integrity")
_EXAMPLE: Final = """
    with sizes as (select room_id, count(*) as events from gold.events group by room_id),
    large as (select max_by(room_id, events) as room_id, max_by(room_id, -events) as other from sizes),
    latest as (select max_by(event_id, stream_ordering) as event_id from gold.events join large using (room_id))
    select event_id, room_id, min(user_id), other
    from gold.visibility_intervals join large using (room_id) cross join latest
    where membership = 'join' group by all
"""


class VisibilityBuild:
    """Build the view's models on a run's branch, publish them, and query the view."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._runs = settings, 0
        self._views: dict[str, str] = {}
        spark_runs.set_driver_memory(settings)
        self._app = self._new_app()
        self._app.spark.sql("select 1").collect()

    def new_run(self) -> str:
        """Begin a new run and return its branch."""
        self._app = self._new_app()
        return self._app.run.branch

    def refresh_tables(self) -> None:
        """Refresh Spark's cached tables after another process wrote to them."""
        for table in load_run_tables(self._app.catalog):
            # Spark caches a table for half a minute.
            self._app.spark.sql(f"refresh table {'.'.join(table.name())}")

    def resolve(self) -> None:
        """Resolve the state of all rooms."""
        resolve_rooms(self._app.spark, self._app.catalog, self._app.run.branch)

    def build(self) -> dict[str, float]:
        """Build the models of the view and the inputs of the integrity models; return the seconds of each model."""
        return self._build(*_WITH_PARENTS, "--exclude", *INTEGRITY).seconds

    def check(self) -> ModelTimes:
        """Build the integrity models; return their times."""
        return self._build(*INTEGRITY)

    def build_others(self) -> ModelTimes:
        """Build all other models, except those of the page; return their times."""
        return self._build("*", "--exclude", *_WITH_PARENTS, *PAGE)

    def build_page(self) -> ModelTimes:
        """Build the models that only the page reads; return their times."""
        return self._build(*PAGE)

    def _build(self, *selection: str) -> ModelTimes:
        invocation = project.run_dbt(self._app, ["run", "--select", *selection]).done
        if not invocation.success:
            raise RuntimeError(project.describe_failure(invocation))
        self._views |= {view["view_name"]: view["sql"] for view in project.build_view_rows(invocation)}
        done = invocation.result
        seconds = {result.node.name: result.execution_time for result in done.results}  # type: ignore[union-attr]
        return ModelTimes(seconds, done.elapsed_time)  # type: ignore[union-attr]

    def publish(self) -> dict[str, int]:
        """Fast-forward main of each table to the run's branch, and return the Iceberg snapshot IDs."""
        names = [".".join(table.name()) for table in load_run_tables(self._app.catalog)]
        spark, run = self._app.spark, self._app.run
        heads = {name: fast_forward_main(spark, name, run.branch, run.tag) for name in names}
        return {name: head for name, head in heads.items() if head}

    def release(self) -> CommandExample:
        """Publish the commands' models as a release, and return arguments for the commands."""
        self._build(*(f"+{name}" for name in _RELEASED))
        run, now = self._app.run, datetime.now(UTC)
        ((event, room, user, other),) = self.rows(_EXAMPLE)
        release = Release(
            number=1,
            run_id=run.run_id,
            interval_start=run.start,
            interval_end=run.end,
            branch=run.branch,
            tag=run.tag,
            server_name=SERVER_NAME,
            tables=self.publish(),
            positions={},
            views=self._views,
            checks_passed=0,
            checks_warned=0,
            published_at=now,
            partial=(),
            accepted_at=now,
        )
        append_release(self._app.catalog, release)
        return CommandExample(str(event), str(room), str(user), str(other))

    def count(self, rooms: list[str]) -> tuple[int, float]:
        """Return the number of pairs of ``rooms`` in the view on main, and the seconds of counting them by outcome."""
        with self._open_view(rooms) as connection:
            started = time.monotonic()
            rows = connection.execute(
                f"select outcome, count(*) from {VIEW} group by outcome"  # noqa: S608
            ).fetchall()
        return sum(row[-1] for row in rows), time.monotonic() - started

    def differences(self, rooms: list[str], recording: Path) -> int:
        """Return the number of rows that differ between the view on main and Synapse's answers about ``rooms``."""
        with self._open_view(rooms) as connection:
            return len(visibility_answers.differences(connection, visibility_answers.load(recording)))

    @contextmanager
    def _open_view(self, rooms: list[str]) -> Iterator[DuckDBPyConnection]:
        names = ", ".join(map(quote_literal, rooms))
        with duckdb_reader.open_duckdb(self._settings) as connection:
            tables = sorted(find_table_names(self._views[VIEW]))
            duckdb_reader.create_views(connection, self._settings, None, tables)
            connection.execute(
                f"create view {VIEW} as select * from ({self._views[VIEW]}) where room_id in ({names})"  # noqa: S608
            )
            yield connection

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of ``sql`` on the run's branch."""
        return [tuple(row) for row in self._app.spark.sql(sql).collect()]

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _new_app(self) -> SparkApp:
        self._runs += 1
        return spark_runs.new_app(self._settings, self._runs)
