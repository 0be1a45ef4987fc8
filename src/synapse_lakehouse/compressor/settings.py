"""Settings of the state compressor: from Synapse's documentation, and the lakehouse's own settings."""

import json
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from synapse_lakehouse.compressor.algorithm.compression_settings import Layout, Strategy
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.level_sizes import Levels, parse_levels
from synapse_lakehouse.config.homeserver_yaml import DAY_MILLISECONDS, parse_duration, read_section
from synapse_lakehouse.config.settings import Settings

_CENTURY = 36_500 * DAY_MILLISECONDS
_MAXIMUM = 1_000_000_000


def _levels(value: object) -> Levels:
    return parse_levels(str(value))


def _rooms(value: object) -> object:
    """Parse a list of room IDs: a list, a JSON list as text, or IDs separated by spaces."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.lstrip().startswith("[") else value.split()


class CompressorSettings(BaseModel):
    """The section ``state_compressor`` of a homeserver.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(False, description="whether the DAG state_compression compresses state")
    chunk_size: int = Field(500, ge=1, le=_MAXIMUM, description="for levels: state groups that are compressed at once")
    number_of_rooms: int = Field(
        5, ge=1, le=_MAXIMUM, description="rooms per run: those with the most uncompressed state"
    )
    default_levels: Annotated[Levels, BeforeValidator(_levels)] = Field(
        parse_levels("100,50,25"),
        description="for levels: sizes of the levels, the smallest deltas first, such as 100,50,25",
    )
    time_between_runs: Annotated[int, BeforeValidator(parse_duration)] = Field(
        DAY_MILLISECONDS, ge=1, le=_CENTURY, description="time between two runs, in milliseconds or as 1d, 12h, 30m"
    )
    rooms: Annotated[tuple[str, ...], BeforeValidator(_rooms)] = Field(
        (), description="IDs of the rooms to compress; they replace number_of_rooms"
    )
    strategy: Strategy = Field(
        Strategy.LEVELS, description="levels (as Synapse's own compressor) or best (the fewest rows)"
    )
    max_chain: int = Field(100, ge=1, le=_MAXIMUM, description="for best: maximum number of state groups in a chain")
    apply: bool = Field(False, description="whether a scheduled run applies its plan without approval")
    busy_sessions: int = Field(
        20, ge=0, le=_MAXIMUM, description="pause while more sessions than this are in a transaction"
    )
    lag_megabytes: int = Field(64, ge=0, le=_MAXIMUM, description="pause while a replica lags by more megabytes")

    @field_validator("chunk_size", "number_of_rooms", "max_chain", "busy_sessions", "lag_megabytes", mode="before")
    @classmethod
    def _is_a_number(cls, value: object) -> object:
        # Pydantic would read YAML's true as 1.
        if isinstance(value, bool):
            raise ValueError("must be a whole number")
        return value

    @property
    def lag_bytes(self) -> int:
        """``lag_megabytes`` in bytes, the unit of PostgreSQL's WAL positions."""
        return self.lag_megabytes * 1_000_000

    @property
    def layout(self) -> Layout:
        """The settings that decide how a room is stored."""
        return Layout(self.strategy, self.default_levels, self.chunk_size, self.max_chain)

    def layout_settings(self) -> dict[str, str | int]:
        """Return the settings of ``layout`` by name, as in ``gold.compression_plan``."""
        return {
            "strategy": self.strategy.value,
            "default_levels": ",".join(str(level.size) for level in self.default_levels),
            "chunk_size": self.chunk_size,
            "max_chain": self.max_chain,
        }


def load_compressor_settings(settings: Settings) -> CompressorSettings:
    """Read LAKEHOUSE_COMPRESSOR_*, then the section ``state_compressor`` of SYNAPSE_CONFIG, then the defaults.

    :raises CompressorError: when the file cannot be read, or a setting is unknown or invalid.
    """
    file_values = read_section(settings.synapse_config, "state_compressor", CompressorError)
    from_file = {str(name): value for name, value in file_values.items() if value is not None}
    prefix = "lakehouse_compressor_"
    from_environment = {name: getattr(settings, prefix + name) for name in CompressorSettings.model_fields}
    from_environment = {name: value for name, value in from_environment.items() if value is not None}
    try:
        return CompressorSettings(**from_file | from_environment)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        source = (prefix + name).upper() if name in from_environment else f"state_compressor.{name} in SYNAPSE_CONFIG"
        raise CompressorError(f"{source} is {first['input']!r}: {first['msg']}.") from error
