"""Decide how much of a table is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from synapse_lakehouse.ingest.baseline import Baseline
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.heap import Heap
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange

_MIN_CHANGED_SHARE = 1 / 64


class ReadExtent(StrEnum):
    """How much of a table a run reads."""

    FULL = "full"
    RESUMED = "resumed"
    """The pages that an interrupted run did not read, and the changed rows of the other pages."""
    CHANGED = "changed"
    NONE = "none"
    ABSENT = "absent"
    """The source's release of Synapse lacks the table."""


@dataclass(frozen=True)
class ReadPart:
    """A part of a table to read.

    * ``since``: read only rows that this transaction or a later one wrote; None: all rows.
    * ``ctids``: the ctids of the rows to read, as a PostgreSQL array; None if they are unknown.
    """

    pages: PageRange
    since: int | None = None
    ctids: str | None = None

    def is_small(self, heap_pages: int) -> bool:
        """Return whether the driver reads the part in less time than a Spark job, if the table has ``heap_pages``."""
        return bool(self.ctids) or heap_pages <= page_ranges.SMALL_TABLE_PAGES


@dataclass(frozen=True)
class ReadPlan:
    """The parts to read. ``base``: the baseline to which they are added; None if they replace all content."""

    extent: ReadExtent
    base: Baseline | None
    parts: tuple[ReadPart, ...]


def plan_read(
    base: Baseline | None, heap: Heap, rows_source: int, rows_changed: int, ctids: str | None = None
) -> ReadPlan:
    """Return the plan for a table of ``rows_source`` rows, of which ``rows_changed`` changed since ``base``.

    :param ctids: ctids of the changed rows, if they are few.
    """
    extent = _choose_extent(base, rows_source, rows_changed)
    if extent is ReadExtent.NONE:
        return ReadPlan(extent, base, ())
    if extent is ReadExtent.CHANGED and base and ctids is not None and heap.has_unique_ctids:
        return ReadPlan(extent, base, (ReadPart(WHOLE_TABLE, base.since, ctids),))
    if extent is ReadExtent.FULL:
        base = None
    return ReadPlan(extent, base, tuple(_plan_parts(base, heap, rows_changed / max(rows_source, 1))))


def _choose_extent(base: Baseline | None, rows_source: int, rows_changed: int) -> ReadExtent:
    if base is None:
        return ReadExtent.FULL
    if not base.is_whole:
        return ReadExtent.RESUMED
    if not rows_changed and rows_source == base.rows:
        return ReadExtent.NONE
    outdated = base.rows + rows_changed - rows_source
    return ReadExtent.CHANGED if 2 * rows_changed <= rows_source and outdated <= rows_source else ReadExtent.FULL


def _plan_parts(base: Baseline | None, heap: Heap, share_changed: float) -> Iterator[ReadPart]:
    longest = heap.largest_file_pages
    pages_per_chunk, pages_per_file = page_ranges.choose_chunk_pages(heap.pages), page_ranges.PAGES_PER_CHUNK
    if heap.pages:
        # A range of pages is read from every file of the table. So a chunk has the intended size in pages only if the
        # files are equally long.
        pages_per_chunk = max(1, pages_per_chunk * longest // heap.pages)
        pages_per_file = max(1, pages_per_file * longest // heap.pages)
    for missing in page_ranges.find_remaining_pages(base.pages if base else ()):
        for part in page_ranges.split_pages(missing, longest, pages_per_chunk):
            yield ReadPart(part)
    if base:
        # Changes are sparse, so many pages are read into one file.
        pages_per_file = int(pages_per_file / max(share_changed, _MIN_CHANGED_SHARE))
        for copied in base.pages:
            for part in page_ranges.split_pages(copied, longest, pages_per_file):
                yield ReadPart(part, base.since)
