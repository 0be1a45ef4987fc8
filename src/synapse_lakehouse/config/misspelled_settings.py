"""Find misspelled names of settings in the environment."""

from collections.abc import Iterable
from difflib import get_close_matches

from synapse_lakehouse.config.settings import Settings

_MIN_SIMILARITY = 0.85
"""Minimum similarity of a misspelled name. It excludes Synapse's own ``SYNAPSE_CONFIG_PATH``."""


def find_misspelled_names(names: Iterable[str]) -> dict[str, str | None]:
    """Return those of ``names`` that look like misspelled settings, each with the most similar setting or None."""
    setting_names = [name.upper() for name in Settings.model_fields]
    misspelled: dict[str, str | None] = {}
    for name in sorted({name.upper() for name in names} - set(setting_names)):
        similar = get_close_matches(name, setting_names, 1, _MIN_SIMILARITY)
        if name.startswith("LAKEHOUSE_") or similar:
            misspelled[name] = similar[0] if similar else None
    return misspelled
