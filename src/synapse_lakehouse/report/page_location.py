"""The place of the page. This module imports nothing that is slow to import."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

_LEVEL: Final = re.compile(r'<section class="status (\w+)"')
"""The element of the page (``page.html.j2``) that contains the level of the status."""


def get_page_path(home: Path) -> Path:
    """Return the file that every release writes, in LAKEHOUSE_HOME."""
    return home / "report" / "index.html"


def read_page_level(home: Path) -> str | None:
    """Return how urgent the state is according to the page, such as ``warning``; None without a readable page."""
    with suppress(OSError, UnicodeDecodeError):
        if match := _LEVEL.search(get_page_path(home).read_text(encoding="utf-8")):
            return match[1]
    return None
