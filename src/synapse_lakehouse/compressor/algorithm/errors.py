"""What can be wrong with settings and groups."""

from synapse_lakehouse.errors import LakehouseError


class CompressorError(LakehouseError):
    """Compressing cannot be done as it was asked for; the message says why."""


class InvalidStateGroupsError(LakehouseError):
    """State groups that cannot be what Synapse stored; the message names one and says what is wrong with it."""
