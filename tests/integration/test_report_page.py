"""The page of the lakehouse is complete, self-contained, safe with hostile text, and readable without rows."""

import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.report import page
from synapse_lakehouse.report.load_template import break_names
from synapse_lakehouse.report.overall_status import INCIDENTS, NEWEST_EVENT, Level, describe_status
from synapse_lakehouse.report.panel import draw_no_chart
from synapse_lakehouse.report.read_panels import PanelReader, PanelRows
from synapse_lakehouse.report.sections import SECTIONS
from tests.conftest import lake_maker
from tests.support import hostile_text
from tests.support.report_lake import RUNS, TABLES, TEXTS, append_rows, open_report_lake, publish

PANELS = [panel for section in SECTIONS for panel in section.panels]
CHARTS = [panel for panel in PANELS if panel.chart is not draw_no_chart]
PURGED = "!purged:example.org"
VOID = {"meta", "br", "link", "img", "input", "hr", "wbr"}


class ParsedPage(HTMLParser):
    """The elements of a page with their attributes, its scripts and its text. All elements must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            attributes, text = self.scripts.pop()
            self.scripts.append((attributes, text + data))
        elif self._open[-1:] != ["style"]:
            self.text += data

    def attributes(self, name: str) -> list[str]:
        """Return the values of an attribute."""
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]

    def specs(self) -> list[dict[str, Any]]:
        """Return the specifications of the charts."""
        return [json.loads(text) for attributes, text in self.scripts if attributes.get("type") == "application/json"]


@pytest.fixture(scope="module")
def make(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Settings]]:
    with lake_maker(server, settings, tmp_path_factory.mktemp("reports")) as maker:
        yield maker


@pytest.fixture(scope="module")
def lake(make: Callable[..., Settings]) -> Settings:
    """Return a lake with two releases, and with hostile text in every table."""
    settings = make()
    with open_report_lake(settings) as catalog:
        publish(catalog, 1, TEXTS)
        publish(catalog, 2, TEXTS)
    return settings


@pytest.fixture(scope="module")
def empty(make: Callable[..., Settings]) -> Settings:
    """Return the lake of an empty homeserver."""
    settings = make()
    with open_report_lake(settings) as catalog:
        publish(catalog, 1, [])
    return settings


@pytest.fixture(scope="module")
def purged(make: Callable[..., Settings], tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, str, str]:
    """Return a lake whose second release has no row of a room, and the pages before and after."""
    settings, folder = make(), tmp_path_factory.mktemp("purged")
    with open_report_lake(settings) as catalog:
        append_rows(catalog, 1, [PURGED])
        plan = {"room_id": PURGED, "strategy": "best", "rows_before": 9, "rows_after": 4, "planned_at": RUNS[1].end}
        store.append_audit_rows(catalog, "gold.compression_plan", [plan], RUNS[1])
        publish(catalog, 1, [])
        before = render(settings, folder)
        for name in TABLES:
            catalog.load_table(name).delete()
        publish(catalog, 2, [])
    return settings, before, render(settings, folder)


def render(settings: Settings, folder: Path) -> str:
    with duckdb_reader.open_duckdb(settings) as connection:
        html = page.write_page(connection, settings, folder / "page.html").read_text(encoding="utf-8")
    # Tests search for names without marks of possible line breaks.
    return html.replace("<wbr>", "")


@pytest.fixture(scope="module")
def html(lake: Settings, tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(lake, tmp_path_factory.mktemp("html"))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.id)
def test_every_panel_reads_and_draws_its_rows(lake: Settings, panel: Any) -> None:
    with duckdb_reader.open_duckdb(lake) as connection:
        panel_rows = PanelReader(connection, lake, duckdb_reader.get_release(connection, lake)).read(panel)
    assert (panel_rows.reason, bool(panel_rows.rows)) == ("", True)
    assert {column.name for column in panel.columns} <= panel_rows.rows[0].keys()
    assert (panel.chart(panel_rows.rows) is None) == (panel.chart is draw_no_chart)


def test_a_wrong_clock_hides_no_event(make: Callable[..., Settings]) -> None:
    settings, schema = make(), TABLES["gold.events"]
    received = [datetime(2026, 11, day, tzinfo=UTC) for day in (3, 4)] + [datetime(2099, 1, 1, tzinfo=UTC)]
    rows = [dict.fromkeys(schema.names, "a") | {"received_at": at, "json_bytes": 9} for at in received]
    with open_report_lake(settings) as catalog:
        catalog.load_table("gold.events").append(pa.Table.from_pylist(rows, schema=schema))
        publish(catalog, 1, [])
    with duckdb_reader.open_duckdb(settings) as connection:
        reader = PanelReader(connection, settings, duckdb_reader.get_release(connection, settings))
        rows_by_panel = {panel.id: reader.read(panel).rows for panel in (*PANELS, NEWEST_EVENT)}
    assert [row["day"].day for row in rows_by_panel["events-by-type"]] == [3, 4]
    assert [row["day"].day for row in rows_by_panel["events-by-room"]] == [3, 4]
    assert [(row["events"], row["last_day"].day) for row in rows_by_panel["growing-rooms"]] == [(2, 4)]
    (newest,) = rows_by_panel[NEWEST_EVENT.id]
    assert (newest["received_at"], newest["future_events"]) == (received[1], 1)


def test_a_failed_chart_does_not_remove_its_table(lake: Settings) -> None:
    with duckdb_reader.open_duckdb(lake) as connection:
        panel_rows = PanelReader(connection, lake, duckdb_reader.get_release(connection, lake)).read(PANELS[0])

    def fail(_: Any) -> None:
        raise OverflowError

    rendered = page.render_panel(replace(panel_rows, panel=replace(panel_rows.panel, chart=fail)))
    assert (rendered.spec, len(rendered.cells)) == (None, len(panel_rows.rows))


def test_every_panel_has_a_chart_a_table_and_a_query(html: str) -> None:
    parsed = ParsedPage(html)
    ids = parsed.attributes("id")
    assert {panel.id for panel in PANELS} | {f"{panel.id}-chart" for panel in CHARTS} <= set(ids)
    assert len(parsed.specs()) == len(CHARTS)
    assert all(spec["description"] for spec in parsed.specs())
    assert sum(tag == "details" for tag, _ in parsed.elements) == 2 * len(PANELS)


def require_elements_of_links(parsed: ParsedPage) -> None:
    """Require that the links within the page lead to elements."""
    ids = parsed.attributes("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in parsed.attributes("href") if link.startswith("#")} <= set(ids)


def test_links_within_the_page_lead_to_an_element(html: str) -> None:
    require_elements_of_links(ParsedPage(html))


def test_hostile_text_is_data(html: str) -> None:
    parsed = ParsedPage(html)
    assert {attributes.get("type") for attributes, _ in parsed.scripts} == {None, "application/json"}
    assert sum("type" not in attributes for attributes, _ in parsed.scripts) == 2
    assert {tag for tag, _ in parsed.elements}.isdisjoint({"img", "b", "iframe", "object", "base", "form"})
    assert not any(name.startswith("on") for _, attributes in parsed.elements for name in attributes)
    assert hostile_text.list_unprintable(parsed.text) == []
    assert not any(hostile_text.list_unprintable(json.dumps(spec, ensure_ascii=False)) for spec in parsed.specs())
    assert "=HYPERLINK" in parsed.text
    assert not any(line.strip().startswith("=HYPERLINK") for line in parsed.text.split("\n"))


def test_the_page_needs_no_network(html: str) -> None:
    parsed = ParsedPage(html)
    assert parsed.attributes("src") == []
    assert all(link.startswith("#") for link in parsed.attributes("href"))
    assert "default-src 'none'" in html


def test_the_page_is_small(html: str) -> None:
    assert len(html.encode()) < 2_000_000


def test_open_incidents_lead_to_their_runbook(html: str) -> None:
    parsed = ParsedPage(html)
    assert "Act now" in parsed.text
    assert "#findings" in parsed.attributes("href"), "findings without urgency have links too"
    # Three links of the incidents, and one in the runbook about integrity.
    assert parsed.attributes("href").count("#runbook-lost-ids") == 4
    assert {"#runbook-integrity", "#runbook-release-overdue"} <= set(parsed.attributes("href"))
    assert "page-missing" not in parsed.text, "this page is not missing"
    assert "ended" not in [line.strip() for line in parsed.text.split("\n")]


def test_unreadable_incidents_are_a_warning() -> None:
    status = describe_status(None, PanelRows(INCIDENTS, [], "an error", is_unread=True))
    assert status.level is Level.WARNING


def test_differences_since_yesterday_are_shown(html: str) -> None:
    assert "lakehouse diff 1 2" in ParsedPage(html).text


def test_the_time_between_the_releases_is_named(html: str) -> None:
    assert "Changes since yesterday" in ParsedPage(html).text


def test_names_break_after_punctuation_and_are_escaped() -> None:
    assert break_names("m.room_<b>:x 12.5") == "m.<wbr>room_<wbr>&lt;b&gt;:<wbr>x 12.5"
    pieces = str(break_names("$" + "a" * 43)).split("<wbr>")
    assert ("".join(pieces), max(map(len, pieces))) == ("$" + "a" * 43, 24)


def test_each_panel_of_an_empty_homeserver_has_a_sentence(empty: Settings, tmp_path: Path) -> None:
    parsed = ParsedPage(render(empty, tmp_path))
    sentences = [attributes for _, attributes in parsed.elements if attributes.get("class") == "empty"]
    # A sentence for each panel, for the comparison, and for browsers without scripts. The panel of runs has a row.
    assert len(sentences) == len(PANELS) - 1 + 2
    assert "No incident is open" in parsed.text


def test_a_lake_without_a_release_has_a_page(make: Callable[..., Settings], tmp_path: Path) -> None:
    settings = make()
    with open_report_lake(settings):
        parsed = ParsedPage(render(settings, tmp_path))
    assert "Needs attention" in parsed.text
    assert parsed.specs() == []
    require_elements_of_links(parsed)


def test_a_purged_room_is_named_nowhere(purged: tuple[Settings, str, str]) -> None:
    settings, before, after = purged
    assert PURGED in before
    assert PURGED not in after
    for command in ("diff", "metrics"):
        result = CliRunner().invoke(app, [command], env=settings.to_environment())
        assert (result.exit_code, PURGED in result.output) == (0, False), result.output


def test_the_command_writes_a_private_file(lake: Settings, tmp_path: Path) -> None:
    file = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(app, ["report", "--output", str(file)], env=lake.to_environment())
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == file.as_uri()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_failure_deletes_the_former_page(lake: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.html"
    file.write_text("names a purged room")
    with duckdb_reader.open_duckdb(lake) as connection:
        connection.close()
        with pytest.raises(Exception, match=r"(?i)closed"):
            page.write_page(connection, lake, file)
    assert list(tmp_path.iterdir()) == []
