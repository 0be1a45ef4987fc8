"""Read the homeserver's message retention, which hides and purges old messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from synapse_lakehouse.config.homeserver_yaml import DAY_MILLISECONDS, parse_duration, read_section
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

_MAXIMUM_LIFETIME: Final = 2**63 - 1
"""Longest duration that fits into a bigint, in ms. Synapse permits longer durations."""


class RetentionError(LakehouseError):
    """LAKEHOUSE_RETENTION_*, or ``retention`` in SYNAPSE_CONFIG, is invalid."""


@dataclass(frozen=True)
class Retention:
    """The homeserver's message retention (``synapse.config.retention``). Durations are in ms.

    ``max_lifetime`` applies to messages in rooms without a retention policy; None means unlimited. ``least_lifetime``
    (the server's ``allowed_lifetime_min``) and ``purge_interval`` (the longest interval of its ``purge_jobs``)
    determine when messages are purged. They have no effect on which messages are shown.
    """

    enabled: bool
    max_lifetime: int | None
    least_lifetime: int = 0
    purge_interval: int = DAY_MILLISECONDS

    def variables(self, as_of: datetime) -> dict[str, Any]:
        """Return the variables of dbt's models."""
        return {
            "retention_enabled": self.enabled,
            "retention_max_lifetime": None if self.max_lifetime is None else min(self.max_lifetime, _MAXIMUM_LIFETIME),
            "as_of": int(as_of.timestamp() * 1000),
            "retention_least_lifetime": min(self.least_lifetime, _MAXIMUM_LIFETIME),
            # The next purge job starts after one interval, and takes some time.
            "retention_purge_delay": min(self.purge_interval, _MAXIMUM_LIFETIME) + DAY_MILLISECONDS,
        }


def read_retention(settings: Settings) -> Retention:
    """Read the section ``retention`` of SYNAPSE_CONFIG. The settings LAKEHOUSE_RETENTION_* override its values.

    :raises RetentionError: if the file cannot be read, or a value is invalid.
    """
    config = read_section(settings.synapse_config, "retention", RetentionError)
    policy = config.get("default_policy") or {}
    if not isinstance(policy, Mapping):
        raise RetentionError("retention.default_policy in SYNAPSE_CONFIG must be a section.")
    enabled = settings.lakehouse_retention_enabled
    lifetime = settings.lakehouse_retention_max_lifetime or policy.get("max_lifetime")
    jobs = config.get("purge_jobs") or []
    if not isinstance(jobs, list) or not all(isinstance(job, Mapping) for job in jobs):
        raise RetentionError("retention.purge_jobs in SYNAPSE_CONFIG must be a list of sections.")
    intervals = [job.get("interval") for job in jobs]
    try:
        return Retention(
            enabled=bool(config.get("enabled")) if enabled is None else enabled,
            max_lifetime=None if lifetime is None else parse_duration(lifetime),
            least_lifetime=parse_duration(config.get("allowed_lifetime_min") or 0),
            purge_interval=max(map(parse_duration, filter(None, intervals)), default=DAY_MILLISECONDS),
        )
    except ValueError as error:
        raise RetentionError(
            "A duration of retention (LAKEHOUSE_RETENTION_MAX_LIFETIME, or max_lifetime, allowed_lifetime_min or "
            f"interval in SYNAPSE_CONFIG) is {error}."
        ) from error
