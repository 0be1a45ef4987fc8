"""Who may see what, by the lake: equal to every answer of a real Synapse on the same database."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli.visibility import judge_at
from synapse_lakehouse.lake import duck, tables
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.state.rules import ORDER
from tests.conftest import Published
from tests.visibility import answers, holding, record
from tests.visibility.mutants import mutants

RUN = Run("test_synapse_agrees", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))


def test_every_answer_on_the_sample_is_synapse_s(published: Published) -> None:
    recorded = answers.load(record.SAMPLE)
    with duck.connect(published.settings) as connection:
        holding.bind_release(connection, published.settings, duck.release(connection, published.settings))
        judge_at(connection, recorded.about["as_of"])
        assert holding.differences(connection, recorded) == []


@pytest.fixture
def harsh(
    new_lake: Callable[..., Settings],
    source_copy: str,
    spark_app: Callable[[str, Settings, Run], subprocess.CompletedProcess[str]],
) -> Settings:
    """An empty lake, on which one run of the harsh database built its branch and published nothing."""
    with psycopg.connect(source_copy) as source:
        source.execute(record.HARSH_SQL.read_text())
    lifetime = answers.load(record.HARSH).about["sections"]["retention"]["default_policy"]["max_lifetime"]
    settings = new_lake(
        synapse_dsn=source_copy, lakehouse_retention_enabled=True, lakehouse_retention_max_lifetime=str(lifetime)
    )
    tables.ensure(pyiceberg_catalog(settings), catalogue.load())
    for app in ("snapshot_tables", "resolve_state", "build_models"):
        done = spark_app(app, settings, RUN)
        assert done.returncode == 0, done.stdout + done.stderr
    return settings


def test_every_answer_on_the_harsh_sample_is_synapse_s(harsh: Settings) -> None:
    recorded = answers.load(record.HARSH)
    with duck.connect(harsh) as connection:
        sql = holding.bind_branch(connection, harsh, RUN.branch, RUN.run_id)
        judge_at(connection, recorded.about["as_of"])
        assert holding.differences(connection, recorded) == []
        rules = {rule for (rule,) in connection.execute("select distinct rule from gold.event_visibility").fetchall()}
        assert rules == {one.name for one in ORDER} | {"call_invite", "sender_erased"}
        survivors = [wrong for wrong in mutants(connection, sql) if not holding.differences(connection, recorded)]
    assert survivors == []
