"""Data Docs link to the failed checks, need no other server, and contain counts and no message content."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from expectations import data_docs_renderers, gx_validation
from synapse_lakehouse.config.settings import Settings
from tests.support.validation import change, validate_run


def pages(settings: Settings) -> list[Path]:
    """Return all pages of Data Docs."""
    return sorted(gx_validation.index_page(settings).parent.rglob("*.html"))


def test_pages_have_only_counts_and_no_external_links(settings: Settings) -> None:
    validate_run(settings, change("table_facts", 0, event_id="$private-event", duplicate_keys=1))
    all_pages = pages(settings)
    assert len(all_pages) == 3, "index, expectations and validation"
    for page in all_pages:
        text = page.read_text(encoding="utf-8")
        assert "$private-event" not in text
        assert not re.search(r"https?://|<script", text), page.name
    stored_files = (settings.lakehouse_home / "great_expectations").rglob("*.json")
    assert not any("$private-event" in path.read_text(encoding="utf-8") for path in stored_files)


def test_pages_link_to_each_other_and_to_failures(settings: Settings) -> None:
    result = validate_run(settings, change("table_facts", 0, duplicate_keys=1))
    index_page = gx_validation.index_page(settings)
    validation_page = Path(unquote(urlsplit(result.data_docs).path))
    for page in (index_page, validation_page):
        for link in re.findall(r'href="([^"]+)"', page.read_text(encoding="utf-8")):
            assert (page.parent / unquote(link)).resolve() in pages(settings), link
    assert ">failed<" in index_page.read_text(encoding="utf-8")
    assert "1 row with a repeated key" in validation_page.read_text(encoding="utf-8")


def test_alerts_link_to_the_served_pages(settings: Settings) -> None:
    page = validate_run(settings).data_docs
    url = validate_run(
        settings.model_copy(update={"lakehouse_data_docs_url": "https://lake.example.org/docs/"})
    ).data_docs
    assert url.startswith("https://lake.example.org/docs/validations/")
    assert url.removeprefix("https://lake.example.org/docs").count("/") == page.partition("/data_docs")[2].count("/")


def test_a_warning_does_not_look_like_a_failure(settings: Settings) -> None:
    validate_run(settings, change("stream_positions", 0, rule="provisional"))
    text = gx_validation.index_page(settings).read_text(encoding="utf-8")
    assert '"state passed"' in text
    assert '"state failed"' not in text


def test_only_the_latest_validations_are_retained(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_docs_renderers, "RETAINED_RESULTS", 2)
    latest_pages = [validate_run(settings).data_docs for _ in range(3)][1:]
    validation_pages = [page for page in pages(settings) if "validations" in page.parts]
    assert [str(page) for page in validation_pages] == [unquote(urlsplit(url).path) for url in latest_pages]
