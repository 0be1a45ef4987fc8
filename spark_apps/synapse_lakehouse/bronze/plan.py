"""How much of a table has to be read."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from synapse_lakehouse.bronze.base import Base
from synapse_lakehouse.source import pages
from synapse_lakehouse.source.pages import WHOLE, PageRange

_FEWEST_FILES = 1 / 64


class Extent(StrEnum):
    """How much of a table a run reads."""

    WHOLE = "whole"
    REST = "rest"
    """The pages that an interrupted attempt had not come to, and what changed since in the others."""
    CHANGES = "changes"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Part:
    """Pages, and the transaction since which their rows are read; None: all of them.

    ``places``: where these rows are, an array of ctids, if that is known.
    """

    pages: PageRange
    since: int | None = None
    places: str | None = None

    def is_small(self, heap_pages: int) -> bool:
        """Whether reading it of a table of so many pages costs less than letting another process do it."""
        return self.places is not None or heap_pages <= pages.PAGES_OF_A_SMALL_TABLE


@dataclass(frozen=True)
class Plan:
    """The parts to read. ``base``: what they are added to; None if they replace everything."""

    extent: Extent
    base: Base | None
    parts: tuple[Part, ...]


def plan(base: Base | None, heap_pages: int, rows_source: int, rows_changed: int, places: str | None = None) -> Plan:
    """The plan for a table of so many pages and rows, of which ``rows_changed`` were written since ``base``.

    :param places: where the changed rows are, if they are few.
    """
    extent = _extent(base, rows_source, rows_changed)
    if extent is Extent.NOTHING:
        return Plan(extent, base, ())
    if extent is Extent.CHANGES and base and places is not None:
        return Plan(extent, base, (Part(WHOLE, base.since, places),))
    if extent is Extent.WHOLE:
        base = None
    return Plan(extent, base, tuple(_parts(base, heap_pages, rows_changed / max(rows_source, 1))))


def _extent(base: Base | None, rows_source: int, rows_changed: int) -> Extent:
    if base is None:
        return Extent.WHOLE
    if not base.is_whole:
        return Extent.REST
    if not rows_changed and rows_source == base.rows:
        return Extent.NOTHING
    return Extent.CHANGES if 2 * rows_changed <= rows_source else Extent.WHOLE


def _parts(base: Base | None, heap_pages: int, share_changed: float) -> Iterator[Part]:
    for left in pages.remaining(base.pages if base else ()):
        for part in pages.split(left, heap_pages, pages.PAGES_A_CHUNK):
            yield Part(part)
    if base:
        # Changes are few in many pages, and shall not become as many files.
        pages_a_file = int(pages.PAGES_A_CHUNK / max(share_changed, _FEWEST_FILES))
        for known in (WHOLE,) if base.is_whole else base.pages:
            for part in pages.split(known, heap_pages, pages_a_file):
                yield Part(part, base.since)
