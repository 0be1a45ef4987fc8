"""Errors of readers of the lake."""

from synapse_lakehouse.errors import LakehouseError


class LakeReadError(LakehouseError):
    """The lake cannot be read as asked; the message says why and what to do."""
