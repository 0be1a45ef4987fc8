"""How much of a table has to be read."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from synapse_lakehouse.ingest.baseline import Baseline
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange
from synapse_lakehouse.postgres.rows.read import WrittenPart

_FEWEST_FILES = 1 / 64

_MOST_GROWN: Final = 2_048
"""Pages, 16 MiB, that are read while the source counts; of more, Spark's workers read what changed."""

_FILLED_UP: Final = 64
"""Pages at the end of a table that may have room left: what comes is put there, too, by as many as write to it at the
same time."""


class ReadExtent(StrEnum):
    """How much of a table a run reads."""

    WHOLE = "whole"
    REST = "rest"
    """The pages that an interrupted attempt had not come to, and what changed since in the others."""
    CHANGES = "changes"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ReadPart:
    """Pages, and the transaction since which their rows are read; None: all of them.

    ``places``: where these rows are, an array of ctids, if that is known. ``written``: what became of them, if they
    have been read.
    """

    pages: PageRange
    since: int | None = None
    places: str | None = None
    written: WrittenPart | None = None

    def is_small(self, heap_pages: int) -> bool:
        """Whether reading it of a table of so many pages costs less than letting another process do it."""
        return bool(self.places or self.written) or heap_pages <= page_ranges.SMALL_TABLE_PAGES


@dataclass(frozen=True)
class ReadPlan:
    """The parts to read. ``base``: what they are added to; None if they replace everything."""

    extent: ReadExtent
    base: Baseline | None
    parts: tuple[ReadPart, ...]


def plan_growth(base: Baseline | None, heap_pages: int) -> ReadPart | None:
    """The end of a table that now has so many pages, where nearly all is new if it has grown since ``base``.

    It can be read before anything is counted. None where there is too much of it, or the table is to be read whole.
    """
    if not base or not base.is_whole or base.heap_pages is None:
        return None
    first = max(base.heap_pages - _FILLED_UP, 0)
    is_worth_it = base.heap_pages < heap_pages <= min(first + _MOST_GROWN, 2 * base.heap_pages)
    return ReadPart((first, None), base.since) if is_worth_it else None


def plan_read(
    base: Baseline | None,
    heap_pages: int,
    rows_source: int,
    rows_changed: int,
    places: str | None = None,
    end: ReadPart | None = None,
) -> ReadPlan:
    """The plan for a table of so many pages and rows, of which ``rows_changed`` were written since ``base``.

    :param end: what was read of it already.
    :param places: where the changed rows before ``end`` are, if they are few.
    """
    read = end.written.rows if end and end.written else 0
    extent = _extent(base, rows_source, rows_changed + read)
    if extent is ReadExtent.NOTHING:
        return ReadPlan(extent, base, ())
    if extent is ReadExtent.WHOLE:
        base = end = None
    parts = [end] if end else []
    before = (0, end.pages[0]) if end else WHOLE_TABLE
    if extent is ReadExtent.CHANGES and base and places is not None:
        if rows_changed or not end:
            parts.append(ReadPart(before, base.since, places))
    else:
        parts.extend(_parts(base, heap_pages, before, rows_changed / max(rows_source, 1)))
    return ReadPlan(extent, base, tuple(parts))


def _extent(base: Baseline | None, rows_source: int, rows_changed: int) -> ReadExtent:
    if base is None:
        return ReadExtent.WHOLE
    if not base.is_whole:
        return ReadExtent.REST
    if not rows_changed and rows_source == base.rows:
        return ReadExtent.NOTHING
    return ReadExtent.CHANGES if 2 * rows_changed <= rows_source else ReadExtent.WHOLE


def _parts(base: Baseline | None, heap_pages: int, before: PageRange, share_changed: float) -> Iterator[ReadPart]:
    for left in page_ranges.find_remaining_pages(base.pages if base else ()):
        for part in page_ranges.split_pages(left, heap_pages, page_ranges.PAGES_PER_CHUNK):
            yield ReadPart(part)
    if base:
        # Changes are few in many pages, and shall not become as many files.
        pages_a_file = int(page_ranges.PAGES_PER_CHUNK / max(share_changed, _FEWEST_FILES))
        for known in (before,) if base.is_whole else base.pages:
            for part in page_ranges.split_pages(known, heap_pages, pages_a_file):
                yield ReadPart(part, base.since)
