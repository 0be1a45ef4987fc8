"""Classify missing, late, repeated and changed stream IDs. Pure: it works on ranges of IDs.

Gaps are legal. Each ID at or below the safe bound has a row or an explanation, and its row does not change; only lost,
late, duplicate and changed IDs are faults. Here IDs are distances, without the sign of streams that count downwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class GapClass(StrEnum):
    """The class of a range of IDs."""

    IN_FLIGHT = "in_flight"
    """Assigned by the sequence and above the bound: its row may still be written."""
    ROLLED_BACK = "rolled_back"
    """At or below the bound, without evidence of a row: the transaction wrote no row, or failed."""
    PURGED = "purged"
    """There was a row. A purge, a deleted room, or a move to another ID explains its absence."""
    LOST = "lost"
    """There was a row, and nothing explains its absence."""
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
    """The previous release contains the key with a higher ID than now."""
    MEMBERSHIP = "membership"
    """A row about a membership contains the event and its ID."""
    DELTA = "delta"
    """A change of current state with the ID refers to an event that is not stored."""
    EVENT_JSON = "event_json"
    """The event's JSON is stored without the event, and the room's event graph allows no other ID for it."""
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
"""Flag of a gap that is older than the first release."""


@dataclass(frozen=True)
class StreamWindow:
    """A stream's safe bound in the previous release (None: it had none), its bound now, and the last assigned ID."""

    accepted: int | None
    bound: int
    last: int


@dataclass(frozen=True)
class MissingIds:
    """IDs without a row in ``table`` (None: in any table of the stream), with the same evidence and explanation."""

    first: int
    last: int
    table: str | None = None
    evidence: Evidence | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True)
class PresentId:
    """An ID with suspect rows in ``table`` (None: in several tables).

    ``rows``: number of rows with the ID; ``was_accepted``: the previous release contains the ID; ``is_second_life``: an
    event that was stored before with another ID.
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
    """Classify IDs without a row; a range that contains the bound is split there."""
    gap = StreamGap(missing.first, missing.last, GapClass.LOST, missing.table, missing.evidence, missing.explanation)
    if missing.evidence is not None:
        yield replace(gap, gap_class=GapClass.PURGED if missing.explanation else GapClass.LOST)
        return
    flags = (BEFORE_FIRST_RUN,) if window.accepted is None else ()
    if missing.first <= window.bound:
        yield replace(gap, gap_class=GapClass.ROLLED_BACK, last=min(missing.last, window.bound), flags=flags)
    if missing.last > window.bound:
        yield replace(gap, gap_class=GapClass.IN_FLIGHT, first=max(missing.first, window.bound + 1))


def classify_present(present: PresentId, window: StreamWindow, *, repeats: bool = False) -> Iterator[StreamGap]:
    """Classify an ID with rows as late, duplicate, both or neither.

    :param repeats: whether several rows of the table may share an ID.
    """
    gap = StreamGap(present.id, present.id, GapClass.LATE, present.table)
    is_closed = window.accepted is not None and present.id <= window.accepted
    if is_closed and not present.was_accepted and not present.is_second_life:
        yield gap
    if present.rows > 1 and not repeats:
        yield replace(gap, gap_class=GapClass.DUPLICATE)
