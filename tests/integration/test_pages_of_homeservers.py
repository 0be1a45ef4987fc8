"""The page, metrics, diff and sizes of an empty homeserver, and of a homeserver that federates under load."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from sample.homeserver import homeserver
from sample.settle import settle
from sample.traffic.moderation import delete_room
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
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
        with homeserver(tmp_path / "here", server_name=LOCAL, dsn=dsn, workers=False) as here:
            settle(dsn)
        lake = new_lake(synapse_dsn=dsn, synapse_server_name=LOCAL, synapse_config=here.config_path)
        for _ in range(2):
            _run(lake, "run")
        assert "bronze.events" in _run(lake, "diff", "--format", "csv")
        page = _render_panels(lake, tmp_path)
    assert "No event has been received yet" in page["events-by-room"]
    assert "Nothing is reported" in page["reports"]


def test_a_federating_homeserver_has_a_page(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    """Synapse then deletes the rooms of ``gold.room_cleanup``, and as many rows of each table as the lake expects."""
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        with federation(server, tmp_path) as (local, remote):
            lake = new_lake(synapse_dsn=server.dsn("here"), synapse_server_name=LOCAL, synapse_config=local.config_path)
            load = Load(local, remote, seed=1)
            with load.running():
                time.sleep(SECONDS)
            abandoned_room = load.shared[-1]
            for guest in load.users[:3]:
                guest.leave(abandoned_room)
            settle(server.dsn("here"))
            with psycopg.connect(server.dsn("here")) as source:
                # Synapse would delete these groups between the run and the deletion of the rooms.
                source.execute("delete from state_groups_pending_deletion")
            _run(lake, "run")
            rooms, expected = _read_cleanup(lake)
            before = _count_rows(server.dsn("here"), expected)
            for room in rooms:
                delete_room(load.admin, room, {"purge": True, "block": False})
            after = _count_rows(server.dsn("here"), expected)
        page = _render_panels(lake, tmp_path)
    assert abandoned_room in rooms
    assert {name: before[name] - after[name] for name in expected} == expected
    assert "there.example" in page["federation-delay"]
    assert 'class="chart"' in page["events-by-room"]


def _read_cleanup(settings: Settings) -> tuple[list[str], dict[str, int]]:
    """Return the rooms without a local member, and by table the number of rows that their deletion removes."""
    with duckdb_reader.open_duckdb(settings) as connection:
        names = ["gold.room_cleanup", "silver.room_cleanup_rows"]
        duckdb_reader.create_views(connection, settings, duckdb_reader.get_release(connection, settings), names)
        rooms = connection.execute("select room_id from gold.room_cleanup where stored_rows > 0").fetchall()
        rows = connection.execute(
            "select table_name, sum(stored_rows)::bigint from silver.room_cleanup_rows group by 1"
        ).fetchall()
    return [room for (room,) in rooms], dict(rows)


def _count_rows(dsn: str, tables: Iterable[str]) -> dict[str, int]:
    with psycopg.connect(dsn) as source:
        counts = {
            name: source.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(name))).fetchone()
            for name in tables
        }
    return {name: count[0] for name, count in counts.items() if count}


def _run(settings: Settings, *arguments: str) -> str:
    result = lakehouse(settings, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _render_panels(settings: Settings, folder: Path) -> dict[str, str]:
    """Run all commands, and return the HTML of each panel; require that no panel is empty or shows an error."""
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
