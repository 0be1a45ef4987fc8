"""Streams whose writers nobody configured: who they are is told from stored positions and rows."""

import runpy
from collections.abc import Callable

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.lake import audit
from synapse_lakehouse.settings import PROJECT, Settings
from tests.advancing import advancing

TABLES = ("account_data", "room_account_data", "room_tags_revisions", "stream_positions")


def test_rows_that_name_no_writer_make_nobody_look_missing(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synapse never names the writer of account data, which is a worker here."""
    full = catalogue.load()
    few = full.model_copy(update={"tables": tuple(map(full.table, TABLES)), "streams": (full.stream("account_data"),)})
    monkeypatch.setattr(catalogue, "load", lambda: few)
    with advancing(new_lake(synapse_dsn=source_copy, synapse_config=None)) as lake:
        app = lake.app()
        lake.copy(app)
        runpy.run_path(str(PROJECT / "spark_apps" / "measure_streams.py"))["measure_streams"](app)
        (position,) = audit.of_run(app.catalog, "audit.stream_positions", app.run.run_id)
        facts = audit.of_run(app.catalog, "audit.stream_facts", app.run.run_id)
    assert (position["rule"], position["missing_writers"]) == ("assumed", [])
    assert position["safe_bound"] is not None
    assert {writer for fact in facts for writer, _ in fact["rows_by_writer"]} == {"worker1"}
