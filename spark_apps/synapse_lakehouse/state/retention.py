"""Whether Synapse hides messages that are older than a room wants to keep them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from synapse_lakehouse.homeserver import milliseconds, section
from synapse_lakehouse.settings import Settings


class RetentionError(ValueError):
    """LAKEHOUSE_RETENTION_* or the retention of SYNAPSE_CONFIG cannot be understood."""


@dataclass(frozen=True)
class Retention:
    """Message retention as the homeserver has it (``synapse.config.retention``).

    ``max_lifetime``: for rooms that do not say themselves, in ms; None: for ever. Limits that the server sets to what
    rooms may ask for (``allowed_lifetime_…``) are about what is purged, not about what is shown.
    """

    enabled: bool
    max_lifetime: int | None

    def variables(self, as_of: datetime) -> dict[str, Any]:
        """What dbt's models ask for."""
        return {
            "retention_enabled": self.enabled,
            "retention_max_lifetime": self.max_lifetime,
            "as_of": int(as_of.timestamp() * 1000),
        }


def configured(settings: Settings) -> Retention:
    """The section ``retention`` of SYNAPSE_CONFIG, or what LAKEHOUSE_RETENTION_* sets in place of it.

    :raises RetentionError: on a file that cannot be read, or a value that means nothing.
    """
    given = section(settings.synapse_config, "retention", RetentionError)
    policy = given.get("default_policy") or {}
    if not isinstance(policy, Mapping):
        raise RetentionError(f"retention.default_policy in SYNAPSE_CONFIG is {policy!r}, and should be a section.")
    enabled = settings.lakehouse_retention_enabled
    lifetime = settings.lakehouse_retention_max_lifetime or policy.get("max_lifetime")
    try:
        return Retention(
            enabled=bool(given.get("enabled")) if enabled is None else enabled,
            max_lifetime=None if lifetime is None else milliseconds(lifetime),
        )
    except ValueError as error:
        raise RetentionError(
            f"The lifetime of messages, LAKEHOUSE_RETENTION_MAX_LIFETIME or default_policy.max_lifetime, is {error}."
        ) from error
