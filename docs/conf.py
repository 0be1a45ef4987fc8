"""Settings of Sphinx, with which `make docs` builds the documentation site."""

import html
import re
from typing import Any

project = "synapse-lakehouse"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "260px", "fixed_sidebar": True}
html_static_path = ["../.lakehouse/docs/static"]
html_js_files = ["mermaid.min.js"]

_FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LISTS = {
    "index": {
        "Start": "tutorial glossary architecture",
        "How-to guides": "how-to/*",
        "Reference": "reference/*",
        "Background": "adr/README runbooks/README bench*",
    },
    "adr/README": {"Decisions": "0*"},
    "runbooks/README": {"Runbooks": "*"},
}
"""Page → caption → pages below it. On GitHub, readers use the links in the text."""
_DBT = """
<p><a href="dbt.html">dbt's documentation</a> has the lineage of all models.</p>
"""


def setup(app: Any) -> None:
    """Let Mermaid draw its blocks in the browser, and add lists of pages. GitHub needs neither."""
    app.connect("source-read", _prepare)


def _prepare(_app: object, page: str, source: list[str]) -> None:
    text = _FENCE.sub(lambda block: f'<pre class="mermaid">\n{html.escape(block[1], quote=False)}</pre>', source[0])
    lists = [
        "\n```{toctree}\n:hidden:\n:glob:\n:caption: " + caption + "\n\n" + "\n".join(pages.split()) + "\n```\n"
        for caption, pages in _LISTS.get(page, {}).items()
    ]
    source[0] = text + "".join(lists) + (_DBT if page == "index" else "")
