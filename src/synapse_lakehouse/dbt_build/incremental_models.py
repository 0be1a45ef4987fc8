"""Large tables that dbt builds, of which only rows that follow from what changed are built anew."""

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
    """A table that dbt builds, and what is looked for so that it need not be made of everything."""

    table: str
    made_of: Mapping[str, tuple[str, ...]]
    """The tables that it is made of, with those of models that it reads and does not name, and the columns of changed
    rows that it asks for; of tables without any it asks for the former rows."""
    most: int
    """Where more of its rows, or of others that are read for them, are concerned, it is made of whatever there is."""
    after: str | None = None
    """The last model that has to be built before it can be looked for."""
    mostly_newer: tuple[str, ...] = ()
    """Tables of which it mostly reads rows that came since."""
    row_of: str | None = None
    """The table with the row of which each of its rows is made, by the same key of one column: what is new there is new
    here."""
    is_whole: bool = False
    """All of its rows are made, of rows that are found."""
    reads_json: bool = False
    """As only Spark does, so that Spark makes its rows; DuckDB makes the others'."""

    @property
    def name(self) -> str:
        """As dbt has it."""
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
