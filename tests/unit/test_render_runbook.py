"""A runbook on the page: headings, tables and links are rendered, and HTML in the text is escaped."""

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.report.render_runbook import render_runbook

KINDS = {"late-ids", "data-loss"}


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# A title\n## Below", "<h3>A title</h3>\n<h4>Below</h4>\n"),
        ("[see](late-ids.md#where) it", '<p><a href="#runbook-late-ids">see</a> it</p>\n'),
        ("[**see**](other.md) it", "<p><strong>see</strong> it</p>\n"),
        ("[up](#above) [in](../how-to/x.md) `x`", "<p>up in <code>x</code></p>\n"),
        ("[web](https://a.example/x.md)", '<p><a href="https://a.example/x.md">web</a></p>\n'),
        ("<script>x</script>", "<p>&lt;script&gt;x&lt;/script&gt;</p>\n"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>\n"),
        ("![x](https://a.example/x.png)", '<p>!<a href="https://a.example/x.png">x</a></p>\n'),
    ],
)
def test_markdown_is_rendered(text: str, html: str) -> None:
    assert render_runbook(text, KINDS) == html


def test_tables_are_rendered() -> None:
    html = render_runbook("| a | b |\n|---|---|\n| `1_2` | 3 |\n", KINDS)
    assert ("<th>a</th>" in html, "<td><code>1_2</code></td>" in html) == (True, True)


def test_every_runbook_is_rendered_completely() -> None:
    for path in (PROJECT_FOLDER / "docs" / "runbooks").glob("*.md"):
        html = render_runbook(path.read_text(encoding="utf-8"), KINDS)
        assert html.startswith("<h3>")
        assert "](" not in html
