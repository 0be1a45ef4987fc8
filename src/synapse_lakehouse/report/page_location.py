"""The place of the page. This module imports nothing that is slow to import."""

from pathlib import Path

from synapse_lakehouse.config.settings import Settings


def get_page_path(settings: Settings) -> Path:
    """Return the file that every release writes."""
    return settings.lakehouse_home / "report" / "index.html"
