"""In a browser, the page of the lakehouse is drawn from the disk, readable at any width, and safe."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.report import page
from synapse_lakehouse.report.panel import draw_no_chart
from synapse_lakehouse.report.sections import SECTIONS
from tests.conftest import lake_maker
from tests.support.report_lake import TEXTS, open_report_lake, publish

PANELS = [panel.id for section in SECTIONS for panel in section.panels]
CHARTS = [panel.id for section in SECTIONS for panel in section.panels if panel.chart is not draw_no_chart]
SECONDS = 30


@pytest.fixture(scope="module")
def address(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    with lake_maker(server, settings, folder) as make:
        own = make()
        with open_report_lake(own) as catalog:
            publish(catalog, 1, TEXTS)
            publish(catalog, 2, TEXTS)
        with duckdb_reader.open_duckdb(own) as connection:
            yield page.write_page(connection, own, Path(folder) / "page.html").as_uri()


def show(browser: Chrome, address: str, width: int, theme: str) -> None:
    """Open the page at a width and with a theme, and wait until the charts are drawn."""
    command: Callable[[str, dict[str, Any]], Any] = browser.execute_cdp_cmd
    command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    command("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)
    drawn = "return document.documentElement.dataset.drawn"
    WebDriverWait(browser, SECONDS).until(lambda _: browser.execute_script(drawn))


def run(browser: Chrome, script: str) -> Any:
    """Return the result of a script."""
    execute: Callable[[str], Any] = browser.execute_script
    return execute(f"return {script}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 900, 1440])
def test_every_chart_is_drawn_without_errors(browser: Chrome, address: str, width: int, theme: str) -> None:
    show(browser, address, width, theme)
    assert run(browser, "document.querySelectorAll('.chart svg').length") == len(CHARTS)
    assert run(browser, "document.documentElement.scrollWidth") <= width
    wide = (
        "[...document.querySelectorAll('.chart')].filter(c => c.querySelector('svg').clientWidth > c.clientWidth + 1)"
    )
    assert run(browser, f"{wide}.map(c => c.id)") == []
    log: Callable[[str], list[Any]] = browser.get_log
    assert log("browser") == []
    assert run(browser, "window.hacked") is None
    assert run(browser, "performance.getEntriesByType('resource').map(e => e.name)") == []


def test_text_has_contrast_in_both_themes(browser: Chrome, address: str) -> None:
    for theme in ("light", "dark"):
        show(browser, address, 900, theme)
        for selector in ("h1", ".caption", ".status h2", "a", ".chart svg text"):
            assert contrast(browser, selector) >= 4.5, (theme, selector)


def test_sections_are_reached_by_keyboard(browser: Chrome, address: str) -> None:
    show(browser, address, 900, "light")
    focused = []
    for _ in range(12):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused.append(browser.switch_to.active_element.get_attribute("href") or "")
    assert [link.partition("#")[2] for link in focused[:3]] == ["content", "answers", "changes"]
    summary = browser.find_element(By.CSS_SELECTOR, f"#{PANELS[0]} summary")
    summary.send_keys(Keys.ENTER)
    assert summary.find_element(By.XPATH, "..").get_attribute("open")


def test_narrow_pages_hide_no_column_and_no_label(browser: Chrome, address: str) -> None:
    show(browser, address, 390, "light")
    run(browser, "document.querySelectorAll('details').forEach(item => { item.open = !item.querySelector('pre'); })")
    wide = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1)"
    assert run(browser, f"{wide}.map(box => box.ariaLabel)") == []
    cut = """[...document.querySelectorAll('.chart')].flatMap(chart => {
      const edge = chart.getBoundingClientRect();
      // Labels that would overlap are transparent.
      const visible = [...chart.querySelectorAll('.role-axis-label text:not([opacity="0"])')];
      return visible.filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < edge.left - 1 || box.right > edge.right + 1;
      }).map(text => text.textContent);
    })"""
    assert run(browser, cut) == []


@pytest.mark.parametrize("section", [*(section.id for section in SECTIONS), "changes", "answers", "tables"])
def test_the_heading_of_an_address_is_in_view(browser: Chrome, address: str, section: str) -> None:
    browser.get("about:blank")
    show(browser, f"{address}#{section}", 390, "light")
    WebDriverWait(browser, SECONDS).until(
        lambda _: 0 <= run(browser, f"document.getElementById('{section}-title').getBoundingClientRect().top") < 1000
    )


def test_charts_have_names_for_screen_readers(browser: Chrome, address: str) -> None:
    show(browser, address, 900, "light")
    labels = run(browser, "[...document.querySelectorAll('[role=graphics-document]')].map(s => s.ariaLabel || '')")
    names = run(browser, "[...document.querySelectorAll('.chart')].map(c => c.ariaLabelledByElements[0].textContent)")
    assert all(names)
    assert all(name in label for name, label in zip(names, labels, strict=True))


def contrast(browser: Chrome, selector: str) -> float:
    """Return the contrast of an element's text with its background, by WCAG 2."""
    script = """(() => {
      const element = document.querySelector(%r);
      const isSvg = element instanceof SVGElement;
      const parse = (color) => color.match(/[\\d.]+/g).map(Number);
      let parent = element, back = [0, 0, 0, 0];
      while (parent && (back = parse(getComputedStyle(parent).backgroundColor)).length > 3 && !back[3]) {
        parent = parent.parentElement;
      }
      const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92
        : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const style = getComputedStyle(element);
      const [a, b] = [light(parse(isSvg ? style.fill : style.color)), light(back)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    })()"""
    return float(run(browser, script % selector))
