"""Large models: a run rebuilds only the rows that depend on changed rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

EVENTS: Final = "bronze.events"
_JSON: Final[dict[str, tuple[str, ...]]] = {
    EVENTS: ("event_id",),
    "bronze.event_json": ("event_id",),
    "bronze.rooms": ("room_id",),
}


@dataclass(frozen=True)
class LargeModel:
    """A large model, its inputs, and the limits of an incremental build."""

    table: str
    made_of: Mapping[str, tuple[str, ...]]
    """All inputs, with the columns by which changed rows are searched. Of an input without columns, the former rows are
    compared."""
    most: int
    """Maximum number of affected rows and rows to read; above it, a full build is faster."""
    after: str | None = None
    """The model after which the changed rows can be searched."""
    mostly_newer: tuple[str, ...] = ()
    """Inputs of which mostly new rows are read."""
    row_of: str | None = None
    """Input with a 1:1 key of one column: new keys there are new keys here."""
    is_whole: bool = False
    """An incremental build writes all rows."""
    reads_json: bool = False
    """Only Spark can build it, because it parses events; DuckDB builds the other models."""

    @property
    def name(self) -> str:
        """Name of the model in dbt."""
        return self.table.partition(".")[2]


_REDACTING: Final[dict[str, tuple[str, ...]]] = {
    "bronze.redactions": ("event_id", "redacts"),
    "bronze.room_ban_redactions": ("room_id", "user_id", "redacting_event_id"),
}

_FIELDS: Final = LargeModel(
    "silver.event_fields",
    _JSON,
    most=1_000_000,
    mostly_newer=(EVENTS, "bronze.event_json"),
    row_of="bronze.event_json",
    reads_json=True,
)
_REDACTIONS: Final = LargeModel(
    "silver.redactions",
    _JSON | _REDACTING | {"bronze.rejections": ("event_id",)},
    most=100_000,
    after=_FIELDS.name,
)
_CIRCUMSTANCES: Final = LargeModel(
    "silver.event_visibility_inputs",
    _JSON
    | _REDACTING
    | {
        "bronze.rejections": ("event_id",),
        "bronze.event_to_state_groups": ("event_id",),
        "bronze.ex_outlier_stream": ("event_id",),
        "bronze.partial_state_events": ("event_id",),
        "bronze.un_partial_stated_event_stream": ("event_id",),
        "bronze.erased_users": ("user_id",),
        "bronze.room_retention": ("room_id",),
        "bronze.current_state_events": ("event_id",),
        "silver.state_positions": (),
        "silver.state_intervals": (),
        "silver.state_faults": (),
    },
    most=100_000,
    after=_FIELDS.name,
)
_VISIBILITY: Final = LargeModel(
    "gold.visibility_intervals",
    dict.fromkeys([*_CIRCUMSTANCES.made_of, "bronze.room_memberships", "bronze.local_current_membership"], ()),
    most=2_000_000,
    after=_CIRCUMSTANCES.name,
    is_whole=True,
)
LARGE_MODELS: Final = (_FIELDS, _REDACTIONS, _CIRCUMSTANCES, _VISIBILITY)
