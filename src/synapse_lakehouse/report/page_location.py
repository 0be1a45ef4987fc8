"""The place of the page. This module imports nothing that is slow to import."""

from pathlib import Path


def get_page_path(home: Path) -> Path:
    """Return the file that every release writes, in LAKEHOUSE_HOME."""
    return home / "report" / "index.html"
