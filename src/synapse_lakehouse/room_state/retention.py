"""Whether Synapse hides messages that are older than a room wants to keep them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from synapse_lakehouse.config.homeserver_yaml import DAY_MILLISECONDS, parse_duration, read_section
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

_MOST: Final = 2**63 - 1
"""The longest lifetime that a table can have, in ms. Synapse computes with longer ones."""


class RetentionError(LakehouseError):
    """LAKEHOUSE_RETENTION_* or the retention of SYNAPSE_CONFIG cannot be understood."""


@dataclass(frozen=True)
class Retention:
    """Message retention as the homeserver has it (``synapse.config.retention``).

    ``max_lifetime``: for rooms that do not say themselves, in ms; None: for ever. ``least_lifetime`` (the server's
    ``allowed_lifetime_min``) and ``purge_interval`` (the longest of its ``purge_jobs``) are about what is purged, not
    about what is shown.
    """

    enabled: bool
    max_lifetime: int | None
    least_lifetime: int = 0
    purge_interval: int = DAY_MILLISECONDS

    def variables(self, as_of: datetime) -> dict[str, Any]:
        """What dbt's models ask for."""
        return {
            "retention_enabled": self.enabled,
            "retention_max_lifetime": None if self.max_lifetime is None else min(self.max_lifetime, _MOST),
            "as_of": int(as_of.timestamp() * 1000),
            "retention_least_lifetime": self.least_lifetime,
            # Jobs begin one interval after the one before, and need their time.
            "retention_purge_delay": self.purge_interval + DAY_MILLISECONDS,
        }


def read_retention(settings: Settings) -> Retention:
    """The section ``retention`` of SYNAPSE_CONFIG, or what LAKEHOUSE_RETENTION_* sets in place of it.

    :raises RetentionError: on a file that cannot be read, or a value that means nothing.
    """
    given = read_section(settings.synapse_config, "retention", RetentionError)
    policy = given.get("default_policy") or {}
    if not isinstance(policy, Mapping):
        raise RetentionError("retention.default_policy in SYNAPSE_CONFIG should be a section.")
    enabled = settings.lakehouse_retention_enabled
    lifetime = settings.lakehouse_retention_max_lifetime or policy.get("max_lifetime")
    jobs = given.get("purge_jobs") or []
    if not isinstance(jobs, list) or not all(isinstance(job, Mapping) for job in jobs):
        raise RetentionError("retention.purge_jobs in SYNAPSE_CONFIG should be a list of sections.")
    intervals = [job.get("interval") for job in jobs]
    try:
        return Retention(
            enabled=bool(given.get("enabled")) if enabled is None else enabled,
            max_lifetime=None if lifetime is None else parse_duration(lifetime),
            least_lifetime=parse_duration(given.get("allowed_lifetime_min") or 0),
            purge_interval=max(map(parse_duration, filter(None, intervals)), default=DAY_MILLISECONDS),
        )
    except ValueError as error:
        raise RetentionError(
            "A duration of retention (LAKEHOUSE_RETENTION_MAX_LIFETIME, or max_lifetime, allowed_lifetime_min or "
            f"interval in SYNAPSE_CONFIG) is {error}."
        ) from error
