"""Render a runbook, which is Markdown, as a part of the page."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_LEVELS: Final = 2
"""Number of heading levels that the page has above the runbook."""


def render_runbook(text: str, kinds: Collection[str]) -> Markup:
    """Return ``text`` as HTML. A link to a runbook of ``kinds`` leads to its place on the page.

    Links to other files are text, because the page has only these runbooks. HTML in ``text`` is escaped.
    """
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1:]) + _LEVELS)}"
        if token.children:
            token.children = list(_replace_links(token.children, kinds))
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 - the renderer escapes


def _replace_links(tokens: Sequence[Token], kinds: Collection[str]) -> Iterator[Token]:
    is_link = True
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrs["href"])
            kind = address.partition("#")[0].removesuffix(".md")
            if kind in kinds:
                token.attrs["href"] = f"#runbook-{kind}"
            is_link = kind in kinds or "://" in address
        if is_link or token.type not in {"link_open", "link_close"}:
            yield token
