"""Classify missing, late, duplicate and changed stream IDs. Pure.

Not every gap is a fault: only lost, late, duplicate and changed IDs are. If an ID at or below the safe bound has a row,
the row must not change. If its row disappears, another table must explain the loss. In this module, IDs are distances
from zero: they have no sign.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class GapClass(StrEnum):
    """The class of a range of IDs."""

    IN_FLIGHT = "in_flight"
    """The sequence assigned the ID, which is above the safe bound. Its row may still be written."""
    ROLLED_BACK = "rolled_back"
    """The ID is at or below the safe bound, and nothing shows a row with it: the transaction failed or wrote none."""
    PURGED = "purged"
    """The row existed. A purge, a deleted room, or a move to another ID explains its absence."""
    LOST = "lost"
    """The row existed, and nothing explains its absence."""
    LATE = "late"
    """A row appeared at or below the safe bound of an earlier release."""
    DUPLICATE = "duplicate"
    """Several rows have the ID, in a stream with unique IDs."""
    CHANGED = "changed"
    """The row differs from the previous release in a column that the catalogue does not declare as changing."""


FAULT_CLASSES: Final = (GapClass.LOST, GapClass.LATE, GapClass.DUPLICATE, GapClass.CHANGED)
"""The only classes that raise alerts."""


class Evidence(StrEnum):
    """Evidence that an ID had a row."""

    ACCEPTED_ROW = "accepted_row"
    """The previous release contains the row."""
    OTHER_ID = "other_id"
    """The previous release contains a row with the ID, and now all IDs of the row's key are lower."""
    MEMBERSHIP = "membership"
    """A row of another table, about a membership, names the event and its ID."""
    DELTA = "delta"
    """A change of a room's current state has the ID, and refers to an event that is not stored."""
    EVENT_JSON = "event_json"
    """The event's JSON is stored without the event, and the room's event graph allows only this ID for the event."""
    RDATA = "rdata"
    """A writer announced the row."""


class Explanation(StrEnum):
    """The reason why the absence of a row is not a fault."""

    ROOM_DELETED = "room_deleted"
    HISTORY_PURGED = "history_purged"
    EVENT_GONE = "event_gone"
    """The row belonged to an event that is no longer stored."""
    ACCOUNT_CLOSED = "account_closed"
    SECOND_LIFE = "second_life"
    """The event is stored again, with another ID."""


BEFORE_FIRST_RUN: Final = "before_first_run"
"""Flag of a rolled back ID of a stream that had no safe bound in an earlier release."""

PROVISIONAL_FLAG: Final = "provisional_bound"
"""Flag of a late or lost ID that is a fault only if a provisional bound was safe. It does not block a release."""


@dataclass(frozen=True)
class StreamWindow:
    """A stream's safe bound in the previous release (or None), its present bound, and the last assigned ID.

    ``is_accepted_provisional``: whether ``accepted`` is provisional. ``is_bound_provisional``: whether ``bound`` is.
    """

    accepted: int | None
    bound: int
    last: int
    is_accepted_provisional: bool = False
    is_bound_provisional: bool = False

    @property
    def late_flags(self) -> tuple[str, ...]:
        """Flags of late IDs: a writer that was not known may write at or below a provisional bound."""
        return (PROVISIONAL_FLAG,) if self.is_accepted_provisional else ()

    def lost_flags(self, evidence: Evidence) -> tuple[str, ...]:
        """Return the flags of lost IDs with this evidence.

        At or below a provisional bound, a writer that is not known may write a key again with a lower ID. It may also
        commit and announce a row after the run read the database. All other evidence is valid without a bound.
        """
        is_accepted = evidence is Evidence.OTHER_ID and self.is_accepted_provisional
        is_present = evidence is Evidence.RDATA and self.is_bound_provisional
        return (PROVISIONAL_FLAG,) if is_accepted or is_present else ()


@dataclass(frozen=True)
class MissingIds:
    """A range of IDs without a row, with the same evidence and explanation.

    ``table``: the table that had the rows according to the evidence; None without evidence.
    """

    first: int
    last: int
    table: str | None = None
    evidence: Evidence | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True)
class PresentId:
    """An ID that may be late or duplicate in ``table``. ``table`` is None if several tables share the ID.

    ``rows``: number of rows with the ID. ``was_accepted``: whether the previous release contains the ID.
    ``is_second_life``: whether the event was stored before with another ID.
    """

    id: int
    table: str | None
    rows: int = 1
    was_accepted: bool = False
    is_second_life: bool = False


@dataclass(frozen=True)
class StreamGap:
    """The IDs ``first`` to ``last``, which have the same class, evidence and explanation."""

    first: int
    last: int
    gap_class: GapClass
    table: str | None = None
    evidence: Evidence | None = None
    explanation: Explanation | None = None
    flags: tuple[str, ...] = ()


def classify_missing(missing: MissingIds, window: StreamWindow) -> Iterator[StreamGap]:
    """Classify IDs without a row. A range that contains the safe bound is split at the bound."""
    gap = StreamGap(missing.first, missing.last, GapClass.LOST, missing.table, missing.evidence, missing.explanation)
    if missing.evidence is not None:
        if missing.explanation:
            yield replace(gap, gap_class=GapClass.PURGED)
        else:
            yield replace(gap, flags=window.lost_flags(missing.evidence))
        return
    flags = (BEFORE_FIRST_RUN,) if window.accepted is None else ()
    if missing.first <= window.bound:
        yield replace(gap, gap_class=GapClass.ROLLED_BACK, last=min(missing.last, window.bound), flags=flags)
    if missing.last > window.bound:
        yield replace(gap, gap_class=GapClass.IN_FLIGHT, first=max(missing.first, window.bound + 1))


def classify_present(present: PresentId, window: StreamWindow, *, repeats: bool = False) -> Iterator[StreamGap]:
    """Classify an ID with rows: yield it as late, as duplicate, as both, or not at all.

    :param repeats: whether several rows of the table may share an ID.
    """
    gap = StreamGap(present.id, present.id, GapClass.LATE, present.table)
    is_closed = window.accepted is not None and present.id <= window.accepted
    if is_closed and not present.was_accepted and not present.is_second_life:
        yield replace(gap, flags=window.late_flags)
    if present.rows > 1 and not repeats:
        yield replace(gap, gap_class=GapClass.DUPLICATE)
