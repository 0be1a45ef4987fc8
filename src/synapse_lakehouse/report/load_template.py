"""Load the templates of the pages, and the files that they contain."""

import re
from functools import cache
from importlib.resources import files
from typing import Final

import jinja2
from markupsafe import Markup, escape

from synapse_lakehouse.printable_text import format_bytes
from synapse_lakehouse.report import format_values
from synapse_lakehouse.report.panel import Format

_BREAKS: Final = re.compile(r"[._:](?=[^\s._:\d])|[^\s._:]{24}(?=[^\s._:])")


@cache
def load_template(name: str) -> jinja2.Template:
    """Return a template, with the filters of all pages. Values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.BaseLoader(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "time": format_values.format_time,
        "bytes": format_bytes,
        "short": format_values.shorten,
        "cell": lambda text: break_names(format_values.format_value(text, Format.TEXT)),
        "breakable": break_names,
        "code": _mark_code,
        "number": lambda value: "unknown" if value is None else f"{value:,}",
    }
    return environment.from_string(read_asset(name))


def read_asset(name: str) -> str:
    """Return the text of a file in the folder ``templates``."""
    return (files("synapse_lakehouse.report") / "templates" / name).read_text(encoding="utf-8")


def break_names(text: str) -> Markup:
    """Return ``text`` as HTML that may break after ``.``, ``_``, ``:``, and within long IDs, but not within words."""
    marked = _BREAKS.sub("\\g<0>\0", text)
    return Markup("<wbr>").join(escape(part) for part in marked.split("\0"))


def _mark_code(text: str) -> Markup:
    """``text`` as HTML, with commands between backticks as code."""
    plain, *marked = re.split(r"`([^`]+)`", text)
    pairs = zip(marked[::2], marked[1::2], strict=True)
    return Markup("").join([escape(plain), *(Markup("<code>{}</code>{}").format(code, rest) for code, rest in pairs)])
