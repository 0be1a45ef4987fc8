"""Does a stream go on as its source does? Told from three runs, the first of them long enough ago. Pure.

Idle streams and idle writers stand still, and rightly so. Only who works and does not get on is told of: a writer whose
rows become more while its position stays, and a stream whose ids are handed out while no row comes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from synapse_lakehouse.audit.releases import Release

MINIMUM_IDS: Final = 100
"""Fewer ids than this, all without a row, may be chance."""


@dataclass(frozen=True)
class StreamSample:
    """A stream as a run saw it. ``positions`` by writer; ``rows`` by table and writer; ``handed_out``: the last id of
    the sequence; ``largest``: id that is furthest from zero."""

    positions: Mapping[str, int]
    rows: Mapping[tuple[str, str], int]
    handed_out: int
    largest: int | None


def choose_compared_releases(published: Sequence[Release], now: datetime, hours: int) -> tuple[Release, Release] | None:
    """The latest release, and the youngest before it that is at least so many hours old; None while there is none.

    :param published: all releases, oldest first.
    """
    if not published or not hours:
        return None
    latest = published[-1]
    old = [one for one in published if one.run_id != latest.run_id and now - one.published_at >= timedelta(hours=hours)]
    return (old[-1], latest) if old else None


def find_stalled_writers(first: StreamSample, middle: StreamSample, last: StreamSample) -> dict[str, tuple[int, int]]:
    """Writers whose position stayed while their rows became more, twice: the position, and rows that came.

    A position is stored after the rows. So one look may come between, and a writer that is killed there and then has
    nothing to do stays behind; one that writes again and stays behind does not.
    """
    found = {}
    for writer, position in last.positions.items():
        is_still = first.positions.get(writer) == position == middle.positions.get(writer)
        if is_still and all(sum(_grown(one, other, writer)) for one, other in ((first, middle), (middle, last))):
            found[writer] = position, sum(_grown(first, last, writer))
    return found


def count_ids_without_rows(first: StreamSample, middle: StreamSample, last: StreamSample) -> int:
    """Ids that were handed out while not one of them got a row; 0 where that may be chance."""
    ids = last.handed_out - first.handed_out
    is_still = first.largest == middle.largest == last.largest
    return ids if is_still and ids >= MINIMUM_IDS else 0


def _grown(before: StreamSample, after: StreamSample, writer: str) -> Iterator[int]:
    """Rows by which each table that both know became larger."""
    for (table, name), rows in after.rows.items():
        if name == writer and any(known == table for known, _ in before.rows):
            yield max(rows - before.rows.get((table, name), 0), 0)
