"""Settings of the compression: the strategy and its limits."""

from enum import StrEnum
from typing import Protocol

from synapse_lakehouse.compressor.algorithm.level_sizes import Levels


class Strategy(StrEnum):
    """How the predecessor of each state group is chosen."""

    LEVELS = "levels"
    """The rows and edges that Synapse's own state compressor, rust-synapse-compress-state, would write."""
    BEST = "best"
    """The fewest rows that we can find, with no chain longer than ``max_chain``."""


class Layout(Protocol):
    """The settings that decide how a room is stored."""

    @property
    def strategy(self) -> Strategy: ...  # noqa: D102

    @property
    def default_levels(self) -> Levels:
        """Only for ``levels``: the sizes of the levels."""
        ...

    @property
    def chunk_size(self) -> int:
        """Only for ``levels``: number of state groups that are compressed at once."""
        ...

    @property
    def max_chain(self) -> int:
        """Only for ``best``: maximum number of state groups in a chain."""
        ...
