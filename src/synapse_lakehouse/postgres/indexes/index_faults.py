"""Compare the entries of an index with the rows that it should contain. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

Row = tuple[Any, ...]


class IndexFaultKind(StrEnum):
    """How an index differs from the heap."""

    FOREIGN = "foreign"
    """The entry of one key points to a row of another key."""
    MISSING = "missing"
    """A search for the row's key does not return the row."""
    REPEATED = "repeated"
    """A search for the row's key returns the row more than once."""
    UNREADABLE = "unreadable"
    """PostgreSQL cannot read the index, or a row to which it points."""


@dataclass(frozen=True)
class IndexEntry:
    """An entry, in the order of the index.

    * ``place``: number of the entry in the scan.
    * ``row_id``: ctid of the row. ``row``: the row's values.
    * ``is_own``: the row's key is within the searched range, and a search for this key returns the row.
    """

    place: int
    row_id: str
    row: Row
    is_own: bool


@dataclass(frozen=True)
class IndexFault:
    """A fault, and the values of the row that the entry returns, or that has no entry."""

    kind: IndexFaultKind
    row: Row


def find_index_faults(entries: Sequence[IndexEntry], rows: Iterable[Row]) -> list[IndexFault]:
    """Return all differences between the entries of an index and the ``rows`` that it should contain."""
    faults = [IndexFault(IndexFaultKind.FOREIGN, entry.row) for entry in entries if not entry.is_own]
    own: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        if entry.is_own:
            own.setdefault(entry.row_id, []).append(entry)
    for same_row in own.values():
        faults += _compare_repeats(same_row)
    expected, reached = Counter(rows), Counter(same_row[0].row for same_row in own.values())
    faults += [IndexFault(IndexFaultKind.MISSING, row) for row in (expected - reached).elements()]
    faults += [IndexFault(IndexFaultKind.FOREIGN, row) for row in (reached - expected).elements()]
    return faults


def _compare_repeats(same_row: Sequence[IndexEntry]) -> Iterator[IndexFault]:
    """Yield the faults of a row that several entries return. Entries of one key are neighbours in the index."""
    for former, latter in pairwise(same_row):
        are_neighbours = latter.place == former.place + 1
        kind = IndexFaultKind.REPEATED if are_neighbours else IndexFaultKind.FOREIGN
        yield IndexFault(kind, latter.row)
