"""The overview of several homeservers shows no lower severity than their pages."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.report.overall_status import INCIDENTS, Level, Status, describe_status
from synapse_lakehouse.report.overview import grade_status
from synapse_lakehouse.report.page_location import get_page_path
from synapse_lakehouse.report.read_panels import PanelRows

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def grade(folder: Path, hours: int, page: str | None) -> Status:
    """Return the status of a lake without incidents, by the age of its release and the level on its page."""
    settings = Settings(_env_file=None, lakehouse_home=folder, lakehouse_homeserver="shop", lakehouse_overdue_hours=26)
    path = get_page_path(settings.lake_folder)
    if page:
        path.parent.mkdir(parents=True)
        path.write_text(f'<section class="status {page}" id="x">')
    published_at = NOW - timedelta(hours=hours)
    release = Release(1, "run", NOW, NOW, "branch", "tag", "shop.example", {}, {}, {}, 1, 0, published_at, (), NOW)
    return grade_status(describe_status(release, PanelRows(INCIDENTS, []), "shop"), settings, NOW)


@pytest.mark.parametrize(
    ("hours", "page", "level"),
    [
        (1, None, Level.GOOD),
        (1, "good", Level.GOOD),
        (1, "warning", Level.WARNING),
        (27, None, Level.SERIOUS),
        (27, "warning", Level.SERIOUS),
    ],
)
def test_an_old_release_and_the_page_raise_the_severity(
    tmp_path: Path, hours: int, page: str | None, level: Level
) -> None:
    status = grade(tmp_path, hours, page)
    assert (status.level, bool(status.next_step)) == (level, level is not Level.GOOD)


def test_advice_names_the_homeserver() -> None:
    for rows in (PanelRows(INCIDENTS, []), PanelRows(INCIDENTS, [], "an error", is_unread=True)):
        assert "lakehouse --homeserver shop" in describe_status(None, rows, "shop").next_step
