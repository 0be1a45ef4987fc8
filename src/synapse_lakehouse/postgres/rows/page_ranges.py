"""Ranges of the pages that a table's heap takes: how a table of any kind is read in parts."""

from collections.abc import Iterable
from typing import Final

PageRange = tuple[int, int | None]
"""Pages [first, last) of a table's heap; None: to its end, wherever that is."""

WHOLE_TABLE: Final[PageRange] = (0, None)

PAGES_PER_CHUNK: Final = 16_384
"""128 MiB of heap: about 30 MiB of Parquet, and few enough rows that a lost chunk costs little."""

SMALL_TABLE_PAGES: Final = 256
"""2 MiB of heap, which are read in less time than a Spark job takes to start."""


def split_pages(part: PageRange, pages: int, pages_a_chunk: int) -> list[PageRange]:
    """``part`` of a table of ``pages`` in chunks; the last one ends where ``part`` does."""
    first, last = part
    starts = range(first, max(pages if last is None else last, first + 1), pages_a_chunk)
    return [(start, following) for start, following in zip(starts, [*starts[1:], last], strict=True)]


def count_pages(part: PageRange, pages: int) -> int:
    """Pages that ``part`` of a table of ``pages`` has; at least one, as reading none takes its time too."""
    first, last = part
    return max((pages if last is None else last) - first, 1)


def find_remaining_pages(done: Iterable[PageRange]) -> list[PageRange]:
    """The ranges between those that are done, and after them."""
    left: list[PageRange] = []
    at = 0
    for first, last in sorted(done, key=lambda part: part[0]):
        if first > at:
            left.append((at, first))
        if last is None:
            return left
        at = max(at, last)
    return [*left, (at, None)]
