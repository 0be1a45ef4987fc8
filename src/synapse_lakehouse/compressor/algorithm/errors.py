"""Errors of the compressor's settings and of stored state groups."""

from synapse_lakehouse.errors import LakehouseError


class CompressorError(LakehouseError):
    """The compression is not possible; the message gives the reason."""


class InvalidStateGroupsError(LakehouseError):
    """State groups that Synapse cannot have stored; the message names a group and its fault."""
