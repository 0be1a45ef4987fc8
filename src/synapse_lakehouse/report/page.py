"""Write the page from the latest release and the audit tables: one HTML file that loads nothing from the network."""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import altair as alt
import vl_convert
from duckdb import DuckDBPyConnection
from markupsafe import Markup

from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.report import charts, format_values
from synapse_lakehouse.report.answers import build_answers
from synapse_lakehouse.report.compare_releases import compare_releases
from synapse_lakehouse.report.declared_tables import load_declared_tables
from synapse_lakehouse.report.load_template import load_template, read_asset
from synapse_lakehouse.report.overall_status import INCIDENTS, NEWEST_EVENT, Status, describe_status
from synapse_lakehouse.report.page_location import get_page_path
from synapse_lakehouse.report.panel import Column, Panel, Row
from synapse_lakehouse.report.read_panels import PanelReader, PanelRows, find_tables
from synapse_lakehouse.report.render_runbook import render_runbook
from synapse_lakehouse.report.review_items import grade_status, list_review_items
from synapse_lakehouse.report.sections import SECTIONS

log = get_printable_logger(__name__)

MAX_TABLE_ROWS: Final = 100
"""Maximum number of rows of a panel's table; the query of the panel returns all rows."""

_NAMED_RUNBOOKS: Final = {
    IncidentKind.RELEASE_OVERDUE, *(panel.runbook for section in SECTIONS for panel in section.panels if panel.runbook)
}  # fmt: skip
"""Runbooks that the page names even if no problem is open."""
_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class RenderedPanel:
    """A panel as the template needs it: ``spec`` is the chart, or None; ``columns`` and ``cells`` are the table."""

    panel: Panel
    caption: str
    columns: Sequence[Column]
    reason: str
    spec: Mapping[str, Any] | None
    cells: Sequence[Sequence[str]]
    omitted: int
    tables: Sequence[str]

    @property
    def differs_from_query(self) -> bool:
        """Return whether the table differs from the rows of the query."""
        return self.panel.derive is not Panel.derive

    @property
    def summary(self) -> str:
        """Return the text in place of the chart, for screen readers."""
        heads = [column.heading for column in self.columns]
        first = (
            "; ".join(f"{head} {cell}" for head, cell in zip(heads, self.cells[0], strict=True)) if self.cells else ""
        )
        return f"{self.panel.title}. {self.caption} First row: {first}. The table below has the values."


def write_page(
    connection: DuckDBPyConnection, settings: Settings, output: Path | None = None, airflow: str = ""
) -> Path:
    """Write the page and return its path. A failure deletes the former page, because it may name purged rooms.

    :param output: path of the file; default: see :func:`~synapse_lakehouse.report.page_location.get_page_path`.
    :param airflow: URL of Airflow, for the link to the run; without it, the page has only the ID of the run.
    """
    path = output or get_page_path(settings.lake_folder)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        html = render_page(connection, settings, path, airflow)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(html)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    return path


def render_page(connection: DuckDBPyConnection, settings: Settings, path: Path, airflow: str = "") -> str:
    """Return the HTML of the page for the file ``path``."""
    releases = duckdb_reader.list_releases(connection, settings)
    latest = releases[0] if releases else None
    reader, now = PanelReader(connection, settings, latest), datetime.now(UTC)
    panels = [NEWEST_EVENT, *(panel for section in SECTIONS for panel in section.panels)]
    read = {panel.id: reader.read(panel) for panel in panels}
    review_items = list_review_items(read)
    status = grade_status(
        describe_status(latest, reader.read(INCIDENTS), settings.lakehouse_homeserver), read, review_items
    )
    sections = [(section, [render_panel(read[panel.id]) for panel in section.panels]) for section in SECTIONS]
    named = sorted({table for _, panels in sections for panel in panels for table in panel.tables})
    declared = load_declared_tables()
    comparison = compare_releases(connection, settings, releases)
    runbooks, runbook_texts = _link_runbooks(settings, status)
    style, script, vega = read_asset("page.css"), read_asset("page.js"), _bundle_vega()
    return load_template("page.html.j2").render(
        server=format_values.shorten(latest.server_name if latest else settings.synapse_server_name or ""),
        status=status,
        newest_event=_describe_newest_event(read[NEWEST_EVENT.id]),
        sections=sections,
        comparison=comparison,
        answers=build_answers(read, status, comparison),
        review_items=review_items,
        tables={name: declared[name].description for name in named if name in declared},
        runbooks=runbooks,
        runbook_texts=runbook_texts,
        data_docs=_link_data_docs(settings, path),
        airflow=airflow.rstrip("/"),
        needs_ui=urlsplit(airflow).hostname in _LOOPBACK,
        overdue_hours=round(settings.overdue_after(now) / timedelta(hours=1)),
        written_at=now,
        style=style,
        script=script,
        vega=vega,
        script_hashes=" ".join(f"'sha256-{_hash(text)}'" for text in (vega, script)),
    )


def render_panel(read: PanelRows) -> RenderedPanel:
    """Return the panel with its chart, if its rows have one, and its table."""
    panel, rows = read.panel, read.rows
    chart = _draw(panel, rows) if rows else None
    # A column without values, such as the growth before the second run, is omitted.
    columns = [column for column in panel.columns if any(row[column.name] not in (None, "") for row in rows)]
    rendered = RenderedPanel(
        panel,
        f"{panel.caption} {panel.note(rows) if rows else ''}".strip(),
        columns,
        read.reason,
        None,
        [[_cell(row[column.name], column) for column in columns] for row in rows[:MAX_TABLE_ROWS]],
        max(0, len(rows) - MAX_TABLE_ROWS),
        find_tables(panel),
    )
    if chart is None:
        return rendered
    return RenderedPanel(**vars(rendered) | {"spec": charts.to_spec(chart, rendered.summary)})


def _draw(panel: Panel, rows: Sequence[Row]) -> alt.Chart | None:
    try:
        return panel.chart(rows)
    except Exception:  # Without this, an unexpected value would prevent the whole page.
        log.exception("The chart %s could not be drawn.", panel.id)
        return None


def _cell(value: Any, column: Column) -> str:
    return format_values.format_value(value, column.format)


def _describe_newest_event(event: PanelRows) -> str:
    received_at = next((row["received_at"] for row in event.rows), None)
    if received_at:
        return format_values.format_time(received_at)
    return "not known" if event.is_unread else "none"


def _link_runbooks(settings: Settings, status: Status) -> tuple[dict[str, str], dict[str, Markup]]:
    """The addresses of the runbooks that the page names, and their HTML if LAKEHOUSE_RUNBOOKS is a folder."""
    kinds = sorted({problem.kind for problem in status.problems} | _NAMED_RUNBOOKS)
    if "://" in settings.lakehouse_runbooks:
        return {kind: f"{settings.lakehouse_runbooks.rstrip('/')}/{kind}.md" for kind in kinds}, {}
    files = {kind: PROJECT_FOLDER / settings.lakehouse_runbooks / f"{kind}.md" for kind in kinds}
    present = {kind: file.read_text(encoding="utf-8") for kind, file in files.items() if file.exists()}
    return (
        {kind: f"#runbook-{kind}" for kind in present},
        {kind: render_runbook(text, present) for kind, text in present.items()},
    )


def _link_data_docs(settings: Settings, path: Path) -> str:
    if settings.lakehouse_data_docs_url:
        return f"{settings.lakehouse_data_docs_url.rstrip('/')}/index.html"
    # A copy of the page elsewhere does not reach the Data Docs.
    return "../data_docs/index.html" if path == get_page_path(settings.lake_folder) else ""


def _bundle_vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script, which sets ``window.vegaEmbed``."""
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub requires the optional argument
    return str(bundle).replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
