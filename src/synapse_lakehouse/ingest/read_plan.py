"""Decide how much of a table is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from synapse_lakehouse.ingest.baseline import Baseline
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.copy_to_parquet import WrittenPart
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange

_MIN_CHANGED_SHARE = 1 / 64

_MAX_GROWTH: Final = 2_048
"""16 MiB: new pages up to this number are read while the source counts; more pages are read by Spark's workers."""

_PAGES_WITH_ROOM: Final = 64
"""Pages at the end of a table that may have free space, where concurrent writers also insert new rows."""


class ReadExtent(StrEnum):
    """How much of a table a run reads."""

    FULL = "full"
    RESUMED = "resumed"
    """The pages that an interrupted attempt did not read, and the changed rows of the other pages."""
    CHANGED = "changed"
    NONE = "none"


@dataclass(frozen=True)
class ReadPart:
    """A part of a table to read.

    * ``since``: read only rows that this transaction or a later one wrote; None: all rows.
    * ``places``: ctids of these rows as a PostgreSQL array, if known.
    * ``written``: the file with these rows, if they are read already.
    """

    pages: PageRange
    since: int | None = None
    places: str | None = None
    written: WrittenPart | None = None

    def is_small(self, heap_pages: int) -> bool:
        """Return whether reading it in the driver costs less than a Spark job, for a table of ``heap_pages``."""
        return bool(self.places or self.written) or heap_pages <= page_ranges.SMALL_TABLE_PAGES


@dataclass(frozen=True)
class ReadPlan:
    """The parts to read, and the baseline to which they are added; None if they replace all content."""

    extent: ReadExtent
    base: Baseline | None
    parts: tuple[ReadPart, ...]


def plan_growth(base: Baseline | None, heap_pages: int) -> ReadPart | None:
    """Return the part at the end of a table that has grown since ``base``, where nearly all rows are new.

    It can be read before rows are counted. None if it is too large, or if a full read is necessary anyway.
    """
    if not base or not base.is_whole or base.heap_pages is None:
        return None
    first = max(base.heap_pages - _PAGES_WITH_ROOM, 0)
    is_worthwhile = base.heap_pages < heap_pages <= min(first + _MAX_GROWTH, 2 * base.heap_pages)
    return ReadPart((first, None), base.since) if is_worthwhile else None


def plan_read(
    base: Baseline | None,
    heap_pages: int,
    rows_source: int,
    rows_changed: int,
    places: str | None = None,
    end: ReadPart | None = None,
) -> ReadPlan:
    """Return the plan for a table of ``rows_source`` rows, of which ``rows_changed`` changed since ``base``.

    :param end: a part at the end of the table that is read already.
    :param places: ctids of the changed rows before ``end``, if they are few.
    """
    rows_read = end.written.rows if end and end.written else 0
    extent = _choose_extent(base, rows_source, rows_changed + rows_read)
    if extent is ReadExtent.NONE:
        return ReadPlan(extent, base, ())
    if extent is ReadExtent.FULL:
        base = end = None
    parts = [end] if end else []
    before = (0, end.pages[0]) if end else WHOLE_TABLE
    if extent is ReadExtent.CHANGED and base and places is not None:
        if rows_changed or not end:
            parts.append(ReadPart(before, base.since, places))
    else:
        parts.extend(_plan_parts(base, heap_pages, before, rows_changed / max(rows_source, 1)))
    return ReadPlan(extent, base, tuple(parts))


def _choose_extent(base: Baseline | None, rows_source: int, rows_changed: int) -> ReadExtent:
    if base is None:
        return ReadExtent.FULL
    if not base.is_whole:
        return ReadExtent.RESUMED
    if not rows_changed and rows_source == base.rows:
        return ReadExtent.NONE
    return ReadExtent.CHANGED if 2 * rows_changed <= rows_source else ReadExtent.FULL


def _plan_parts(base: Baseline | None, heap_pages: int, before: PageRange, share_changed: float) -> Iterator[ReadPart]:
    for missing in page_ranges.find_remaining_pages(base.pages if base else ()):
        for part in page_ranges.split_pages(missing, heap_pages, page_ranges.PAGES_PER_CHUNK):
            yield ReadPart(part)
    if base:
        # Changes are sparse, so many pages are read into one file.
        pages_per_file = int(page_ranges.PAGES_PER_CHUNK / max(share_changed, _MIN_CHANGED_SHARE))
        for copied in (before,) if base.is_whole else base.pages:
            for part in page_ranges.split_pages(copied, heap_pages, pages_per_file):
                yield ReadPart(part, base.since)
