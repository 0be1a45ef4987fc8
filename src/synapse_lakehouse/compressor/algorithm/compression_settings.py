"""Settings of the compression: the strategy and its limits."""

from dataclasses import dataclass
from enum import StrEnum

from synapse_lakehouse.compressor.algorithm.level_sizes import Levels


class Strategy(StrEnum):
    """How the predecessor of each state group is chosen."""

    LEVELS = "levels"
    """The rows and edges that Synapse's own state compressor, rust-synapse-compress-state, would write."""
    BEST = "best"
    """The fewest rows that the algorithm finds, with no chain longer than ``max_chain``."""


@dataclass(frozen=True)
class Layout:
    """The settings that decide how a room is stored."""

    strategy: Strategy
    default_levels: Levels
    """Only for ``levels``: the sizes of the levels."""
    chunk_size: int
    """Only for ``levels``: number of state groups that are compressed at once."""
    max_chain: int
    """Only for ``best``: maximum number of state groups in a chain."""
