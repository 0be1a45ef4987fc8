"""Settings of the state compressor, as Synapse's documentation names them, and ours beside them."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from synapse_lakehouse.compression.levels import Levels, parse_levels

_UNITS = {"": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}


class Strategy(StrEnum):
    """How the trees of deltas are chosen."""

    LEVELS = "levels"
    """As Synapse's own compressor does."""
    BEST = "best"
    """As few rows as can be, with no chain longer than Synapse's own."""


def milliseconds(duration: object) -> int:
    """A duration as Synapse's configuration has it: milliseconds, or a number with a unit such as ``90s`` or ``1d``.

    :raises ValueError: for anything else.
    """
    found = re.fullmatch(r"([0-9]+)([smhdwy]?)", str(duration).strip())
    if isinstance(duration, bool) or not found:
        raise ValueError(f"not a duration such as 1d, 12h, 30m, 90s or a number of milliseconds: {duration!r}")
    return int(found[1]) * _UNITS[found[2]]


def _levels(value: object) -> Levels:
    return parse_levels(str(value))


class CompressorSettings(BaseModel):
    """The section ``state_compressor`` of a homeserver.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(False, description="whether the compressor runs by itself")
    chunk_size: int = Field(500, ge=1, description="about how many state groups are worked on, and in memory, at once")
    number_of_rooms: int = Field(
        5, ge=1, description="how many rooms a run takes: those with the most uncompressed state"
    )
    default_levels: Annotated[Levels, BeforeValidator(_levels)] = Field(
        parse_levels("100,50,25"), description="sizes of the levels, the most granular first, such as 100,50,25"
    )
    time_between_runs: Annotated[int, BeforeValidator(milliseconds)] = Field(
        _UNITS["d"], ge=1, description="time from one run to the next, in milliseconds or as 1d, 12h, 30m"
    )
    strategy: Strategy = Field(Strategy.LEVELS, description="levels, as the reference compresses, or best")
    max_chain: int = Field(100, ge=1, description="most groups that the state of one may take to read; for best")
