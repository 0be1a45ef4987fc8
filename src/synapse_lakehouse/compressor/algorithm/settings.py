"""Settings of the state compressor, as Synapse's documentation names them, and ours beside them."""

import json
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.level_sizes import Levels, parse_levels
from synapse_lakehouse.config.homeserver_yaml import DAY_MILLISECONDS, parse_duration, read_section
from synapse_lakehouse.config.settings import Settings

_CENTURY = 36_500 * DAY_MILLISECONDS
_MOST = 1_000_000_000


class Strategy(StrEnum):
    """How the trees of deltas are chosen."""

    LEVELS = "levels"
    """As Synapse's own compressor does."""
    BEST = "best"
    """As few rows as can be, with no chain longer than Synapse's own."""


def _levels(value: object) -> Levels:
    return parse_levels(str(value))


def _rooms(value: object) -> object:
    """A list, also as JSON, or names with spaces between them."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.lstrip().startswith("[") else value.split()


class CompressorSettings(BaseModel):
    """The section ``state_compressor`` of a homeserver.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(False, description="whether the compressor runs by itself")
    chunk_size: int = Field(
        500, ge=1, le=_MOST, description="about how many state groups are worked on, and in memory, at once"
    )
    number_of_rooms: int = Field(
        5, ge=1, le=_MOST, description="how many rooms a run takes: those with the most uncompressed state"
    )
    default_levels: Annotated[Levels, BeforeValidator(_levels)] = Field(
        parse_levels("100,50,25"), description="sizes of the levels, the most granular first, such as 100,50,25"
    )
    time_between_runs: Annotated[int, BeforeValidator(parse_duration)] = Field(
        DAY_MILLISECONDS,
        ge=1,
        le=_CENTURY,
        description="time from one run to the next, in milliseconds or as 1d, 12h, 30m",
    )
    rooms: Annotated[tuple[str, ...], BeforeValidator(_rooms)] = Field(
        (), description="rooms to take instead, by their ids"
    )
    strategy: Strategy = Field(Strategy.LEVELS, description="levels, as the reference compresses, or best")
    max_chain: int = Field(
        100, ge=1, le=_MOST, description="most groups that the state of one may take to read; for best"
    )
    apply: bool = Field(False, description="whether what a scheduled run planned is applied without asking anybody")
    busy_sessions: int = Field(
        20, ge=0, le=_MOST, description="pause while more sessions than these are in a transaction"
    )
    lag_megabytes: int = Field(64, ge=0, le=_MOST, description="pause while a replica is further behind")

    @field_validator("chunk_size", "number_of_rooms", "max_chain", "busy_sessions", "lag_megabytes", mode="before")
    @classmethod
    def _is_a_number(cls, value: object) -> object:
        # YAML's true would be taken for 1.
        if isinstance(value, bool):
            raise ValueError("a whole number is wanted")
        return value

    @property
    def lag_bytes(self) -> int:
        """``lag_megabytes`` as the server counts."""
        return self.lag_megabytes * 1_000_000

    def layout_settings(self) -> dict[str, str | int]:
        """What decides how a room is stored, by the names of these settings, as they are given."""
        return {
            "strategy": self.strategy.value,
            "default_levels": ",".join(str(level.size) for level in self.default_levels),
            "chunk_size": self.chunk_size,
            "max_chain": self.max_chain,
        }


def load_compressor_settings(settings: Settings) -> CompressorSettings:
    """The section of SYNAPSE_CONFIG, what LAKEHOUSE_COMPRESSOR_* sets in place of that, and defaults for the rest.

    :raises CompressorError: on a file that cannot be read, or a setting that is unknown or means nothing.
    """
    found = read_section(settings.synapse_config, "state_compressor", CompressorError)
    given = {str(name): value for name, value in found.items() if value is not None}
    prefix = "lakehouse_compressor_"
    own = {name: getattr(settings, prefix + name) for name in CompressorSettings.model_fields}
    own = {name: value for name, value in own.items() if value is not None}
    try:
        return CompressorSettings(**given | own)
    except ValidationError as error:
        wrong = error.errors()[0]
        name = str(wrong["loc"][0])
        where = (prefix + name).upper() if name in own else f"state_compressor.{name} in SYNAPSE_CONFIG"
        raise CompressorError(f"{where} is {wrong['input']!r}: {wrong['msg']}.") from error
