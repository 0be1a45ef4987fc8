"""Errors of readers of the lake."""

from synapse_lakehouse.errors import LakehouseError


class LakeReadError(LakehouseError):
    """The lake cannot be read. The message contains the reason and the remedy."""


class EarlierFormatError(LakeReadError):
    """An earlier version of the project wrote the lake."""

    def __init__(self) -> None:
        super().__init__(
            "An earlier version of synapse-lakehouse wrote this lake, with other names of tables and columns, so this "
            "version cannot read it. The next run rebuilds the lake from Synapse's database. `make run` starts a run."
        )
