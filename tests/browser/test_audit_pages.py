"""Data Docs, to which alerts link, work in a browser from the disk, without a server."""

from collections.abc import Callable
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from expectations.gx_validation import index_page
from tests.conftest import PublishedLake


def test_data_docs_link_a_run_to_its_checks(published: PublishedLake, browser: Chrome) -> None:
    browser.get(index_page(published.settings).as_uri())
    assert "Audits of the lakehouse" in browser.find_element(By.TAG_NAME, "h1").text

    for audit in ("gold", "bronze"):
        browser.find_element(By.XPATH, f"//tr[td='{audit}']//a").click()
        assert browser.find_element(By.TAG_NAME, "h1").text == f"Audit of {audit}: passed"
        details = browser.find_element(By.TAG_NAME, "details")
        row = details.find_element(By.TAG_NAME, "tr")
        assert not row.is_displayed(), "passed checks are collapsed"
        details.find_element(By.TAG_NAME, "summary").click()
        assert row.is_displayed()
        assert row.text.startswith("passed ")
        browser.find_element(By.LINK_TEXT, f"Expectations of {audit}").click()
        assert browser.find_elements(By.TAG_NAME, "td")
        browser.find_element(By.LINK_TEXT, "All audits").click()
    log: Callable[[str], list[Any]] = browser.get_log
    assert log("browser") == []
