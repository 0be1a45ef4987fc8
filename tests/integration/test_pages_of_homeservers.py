"""The page, metrics, diff and sizes of an empty homeserver, and of one that federates under load."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sample.homeserver import homeserver
from sample.settle import settle
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.report.sections import SECTIONS
from tests.conftest import lakehouse
from tests.integration.federated_load import LOCAL, Load, federation

pytestmark = pytest.mark.heavy

PANELS = [panel.id for section in SECTIONS for panel in section.panels]
SECONDS = 30


def test_an_empty_homeserver_has_a_page(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with embedded_postgres.run_server(tmp_path / "postgres") as server:
        server.create_database("here")
        dsn = server.dsn("here")
        with homeserver(tmp_path / "here", server_name=LOCAL, dsn=dsn, workers=False):
            settle(dsn)
        empty = new_lake(synapse_dsn=dsn, synapse_server_name=LOCAL)
        for _ in range(2):
            _run(empty, "run")
        assert "bronze.events" in _run(empty, "diff", "--format", "csv")
        page = _look(empty, tmp_path)
    assert "No event has been received yet" in page["events-by-room"]
    assert "Nothing is reported" in page["reports"]


def test_a_federating_homeserver_has_a_page(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        with federation(server, tmp_path) as (local, remote):
            busy = new_lake(synapse_dsn=server.dsn("here"), synapse_server_name=LOCAL, synapse_config=local.config_path)
            load = Load(local, remote, seed=1)
            with load.running():
                time.sleep(SECONDS)
            settle(server.dsn("here"))
        _run(busy, "run")
        page = _look(busy, tmp_path)
    assert "there.example" in page["federation-delay"]
    assert 'class="chart"' in page["events-by-room"]


def _run(settings: Settings, *arguments: str) -> str:
    result = lakehouse(settings, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _look(settings: Settings, folder: Path) -> dict[str, str]:
    """The HTML of each panel, after all commands have succeeded; no frame is empty, and none names an error."""
    file = folder / "page.html"
    _run(settings, "report", "--output", str(file))
    assert "synapse_lakehouse_release" in _run(settings, "metrics")
    assert "events" in _run(settings, "sizes", "--all", "--format", "csv")
    html = file.read_text()
    articles = {
        panel: html.partition(f'<article id="{panel}"')[2].partition("</article>")[0] for panel in PANELS
    }  # fmt: skip
    for panel, article in articles.items():
        assert any(mark in article for mark in ('class="chart"', 'class="empty"', "<td")), panel
        assert "could not be read" not in article, panel
        assert "The lake has no" not in article, panel
    answers = html.partition('<dl class="answers">')[2].partition("</dl>")[0]
    assert answers.count("<dd>") == 10
    assert "<dd></dd>" not in answers
    return articles
