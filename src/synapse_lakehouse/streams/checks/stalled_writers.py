"""Find writers and streams that stopped advancing, by comparing three runs. Pure.

An idle stream or an idle writer is no fault. A fault is a writer that adds rows while its position stays the same, or a
stream whose IDs are assigned while no row appears.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from synapse_lakehouse.audit.releases import Release

MINIMUM_IDS: Final = 100
"""Minimum number of IDs without a row that is a fault. A smaller number may be chance."""


@dataclass(frozen=True)
class StreamSample:
    """The measurements of a stream by one run.

    ``positions`` by writer, ``rows`` by table and writer, ``last_allocated_id``, and the ``largest`` ID of a row.
    """

    positions: Mapping[str, int]
    rows: Mapping[tuple[str, str], int]
    last_allocated_id: int
    largest: int | None


def choose_compared_releases(published: Sequence[Release], now: datetime, hours: int) -> tuple[Release, Release] | None:
    """Return the newest release that is at least ``hours`` old, and the latest release; None if none is old enough.

    :param published: all releases, oldest first.
    """
    if not published or not hours:
        return None
    latest = published[-1]
    age = timedelta(hours=hours)
    old = [release for release in published if release.run_id != latest.run_id and now - release.published_at >= age]
    return (old[-1], latest) if old else None


def find_stalled_writers(first: StreamSample, middle: StreamSample, last: StreamSample) -> dict[str, tuple[int, int]]:
    """Return, by stalled writer, the position and the number of new rows.

    The position of a stalled writer stayed the same while its number of rows increased twice. A single increase is no
    fault: a writer stores its position after its rows. In between, a sample may be taken, or the writer may be killed.
    """
    stalled = {}
    for writer, position in last.positions.items():
        is_unmoved = first.positions.get(writer) == position == middle.positions.get(writer)
        if is_unmoved and all(sum(_new_rows(*pair, writer)) for pair in ((first, middle), (middle, last))):
            stalled[writer] = position, sum(_new_rows(first, last, writer))
    return stalled


def count_ids_without_rows(first: StreamSample, middle: StreamSample, last: StreamSample) -> int:
    """Return the number of IDs that were assigned while no row appeared; 0 below :data:`MINIMUM_IDS`."""
    ids = last.last_allocated_id - first.last_allocated_id
    is_unmoved = first.largest == middle.largest == last.largest
    return ids if is_unmoved and ids >= MINIMUM_IDS else 0


def _new_rows(before: StreamSample, after: StreamSample, writer: str) -> Iterator[int]:
    """Yield the number of the writer's new rows in each table that both samples contain."""
    for (table, name), rows in after.rows.items():
        if name == writer and any(table_before == table for table_before, _ in before.rows):
            yield max(rows - before.rows.get((table, name), 0), 0)
