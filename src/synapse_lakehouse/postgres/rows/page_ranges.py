"""Split the heap of any table into ranges of pages, so that the table is read in parts."""

from collections.abc import Iterable
from typing import Final

PageRange = tuple[int, int | None]
"""Pages [first, last) of a table's heap. ``last`` is None for the end of the heap."""

WHOLE_TABLE: Final[PageRange] = (0, None)

PAGES_PER_CHUNK: Final = 16_384
"""128 MiB of heap, which become about 30 MiB of Parquet. A lost chunk of this size is cheap to read again."""

_LARGEST_FACTOR: Final = 13
"""Factor of the largest chunks. Their files have about 384 MiB, so maintenance does not merge them."""

_FEWEST_CHUNKS: Final = 32

SMALL_TABLE_PAGES: Final = 256
"""2 MiB of heap. Reading a table of this size takes less time than the start of a Spark job."""


def choose_chunk_pages(pages: int) -> int:
    """Return the pages per chunk of a table with ``pages`` pages. Large tables have larger chunks, so fewer files."""
    return PAGES_PER_CHUNK * min(max(pages // (_FEWEST_CHUNKS * PAGES_PER_CHUNK), 1), _LARGEST_FACTOR)


def split_pages(part: PageRange, pages: int, pages_per_chunk: int) -> list[PageRange]:
    """Split ``part`` of a table with ``pages`` pages into chunks. The last chunk ends where ``part`` ends."""
    first, last = part
    starts = range(first, max(pages if last is None else last, first + 1), pages_per_chunk)
    return [(start, following) for start, following in zip(starts, [*starts[1:], last], strict=True)]


def find_remaining_pages(copied: Iterable[PageRange]) -> list[PageRange]:
    """Return the ranges of pages that are not in ``copied``."""
    remaining: list[PageRange] = []
    at = 0
    for first, last in sorted(copied, key=lambda part: part[0]):
        if first > at:
            remaining.append((at, first))
        if last is None:
            return remaining
        at = max(at, last)
    return [*remaining, (at, None)]
