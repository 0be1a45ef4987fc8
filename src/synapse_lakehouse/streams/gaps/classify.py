"""What a missing, late, repeated or changed stream id means: pure decisions on ranges of ids.

Gaps are legal. An id at or below the safe bound has a row or an explanation, and its row stays what it is; only what
is lost, late, duplicate or changed is a fault. Ids are distances here, without the sign of streams that count
downwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class GapClass(StrEnum):
    """What is the matter with a range of ids."""

    IN_FLIGHT = "in_flight"
    """Handed out by the sequence, above the bound: its row may still come."""
    ROLLED_BACK = "rolled_back"
    """Closed without a trace: the transaction had nothing to say, or failed."""
    PURGED = "purged"
    """There was a row, and it went with a purge, a deleted room, or by moving to another id."""
    LOST = "lost"
    """There was a row, and nothing explains that it is gone."""
    LATE = "late"
    """A row appeared at or below a bound that was accepted before."""
    DUPLICATE = "duplicate"
    """More rows than one have the id, where one row per fact holds."""
    CHANGED = "changed"
    """Its row says something else than when it was accepted, and not only where the catalogue allows it."""


FAULT_CLASSES: Final = (GapClass.LOST, GapClass.LATE, GapClass.DUPLICATE, GapClass.CHANGED)
"""The only classes that anybody is to be woken for."""


class Evidence(StrEnum):
    """What tells that an id had a row."""

    ACCEPTED_ROW = "accepted_row"
    """The release before has it."""
    OTHER_ID = "other_id"
    """The release before has the key under a higher id than now."""
    MEMBERSHIP = "membership"
    """A row about a membership names its event and id."""
    DELTA = "delta"
    """A change of current state at the id names an event that is not there."""
    EVENT_JSON = "event_json"
    """The event's JSON is there without the event, and the graph of the room leaves it no other id."""
    RDATA = "rdata"
    """A writer announced it."""


class Explanation(StrEnum):
    """Why a row that was there is gone, and rightly so."""

    ROOM_DELETED = "room_deleted"
    HISTORY_PURGED = "history_purged"
    EVENT_GONE = "event_gone"
    """The row belonged to an event, and went with it."""
    ACCOUNT_CLOSED = "account_closed"
    SECOND_LIFE = "second_life"
    """Its event is back under another id."""


BEFORE_FIRST_RUN: Final = "before_first_run"
"""Flag: from before anything was accepted, so that nobody watched."""


@dataclass(frozen=True)
class StreamWindow:
    """A stream's bound as it was accepted (None: never), its bound now, and the last id handed out."""

    accepted: int | None
    bound: int
    last: int


@dataclass(frozen=True)
class MissingIds:
    """Ids without a row in ``table`` (None: in any table of the stream), all with the same witness and explanation."""

    first: int
    last: int
    table: str | None = None
    witness: Evidence | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True)
class PresentId:
    """An id with rows in ``table`` (None: in several tables) that it should not have, or not now.

    ``rows``: how many have it; ``was_accepted``: the release before has it; ``is_second_life``: an event that was known
    under another id.
    """

    id: int
    table: str | None
    rows: int = 1
    was_accepted: bool = False
    is_second_life: bool = False


@dataclass(frozen=True)
class StreamGap:
    """Ids ``first`` to ``last`` of one class, with what decided it."""

    first: int
    last: int
    verdict: GapClass
    table: str | None = None
    witness: Evidence | None = None
    explanation: Explanation | None = None
    flags: tuple[str, ...] = ()


def classify_missing(missing: MissingIds, window: StreamWindow) -> Iterator[StreamGap]:
    """The verdict on ids without a row, cut where the bound divides them."""
    told = StreamGap(missing.first, missing.last, GapClass.LOST, missing.table, missing.witness, missing.explanation)
    if missing.witness is not None:
        yield replace(told, verdict=GapClass.PURGED if missing.explanation else GapClass.LOST)
        return
    flags = (BEFORE_FIRST_RUN,) if window.accepted is None else ()
    if missing.first <= window.bound:
        yield replace(told, verdict=GapClass.ROLLED_BACK, last=min(missing.last, window.bound), flags=flags)
    if missing.last > window.bound:
        yield replace(told, verdict=GapClass.IN_FLIGHT, first=max(missing.first, window.bound + 1))


def classify_present(present: PresentId, window: StreamWindow, *, repeats: bool = False) -> Iterator[StreamGap]:
    """The verdicts on an id with rows.

    :param repeats: whether several rows of the table may share an id.
    """
    told = StreamGap(present.id, present.id, GapClass.LATE, present.table)
    is_closed = window.accepted is not None and present.id <= window.accepted
    if is_closed and not present.was_accepted and not present.is_second_life:
        yield told
    if present.rows > 1 and not repeats:
        yield replace(told, verdict=GapClass.DUPLICATE)
