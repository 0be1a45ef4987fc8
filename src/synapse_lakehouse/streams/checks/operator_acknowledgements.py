"""Parse and apply the operator's acknowledgements of faulty IDs, which do not prevent a release."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.streams.gaps.classify import FAULT_CLASSES, StreamGap

ACKNOWLEDGED_FLAG: Final = "acknowledged"
"""Flag of a fault that the operator acknowledged. Acknowledged faults are not counted."""

AcknowledgedIds = Mapping[str, Sequence[tuple[int, int]]]
"""By stream, the first and last ID of each acknowledged range. IDs are without sign."""

_RANGE: Final = re.compile(r"-?(\d{1,18})(?:\.\.-?(\d{1,18}))?")


class AcknowledgedIdsError(LakehouseError):
    """The setting LAKEHOUSE_ACKNOWLEDGED_IDS is invalid."""


def parse_acknowledged_ids(catalogue: Catalogue, setting: str) -> AcknowledgedIds:
    """Parse LAKEHOUSE_ACKNOWLEDGED_IDS, such as ``events:4711,4800..4810 backfill:-20..-12``.

    :raises AcknowledgedIdsError: on bad syntax or an unknown stream.
    """
    streams = {stream.name for stream in catalogue.streams}
    acknowledged: dict[str, list[tuple[int, int]]] = {}
    for part in setting.split():
        stream, _, ranges = part.partition(":")
        matches = [_RANGE.fullmatch(text) for text in ranges.split(",")]
        if stream not in streams or not all(matches):
            raise AcknowledgedIdsError(
                f"LAKEHOUSE_ACKNOWLEDGED_IDS contains {part!r}, which is not of the form stream:id,first..last with "
                f"one of the catalogue's streams ({', '.join(sorted(streams))}). Separate several streams by spaces."
            )
        for match in filter(None, matches):
            ends = sorted((int(match[1]), int(match[2] or match[1])))
            acknowledged.setdefault(stream, []).append((ends[0], ends[1]))
    return acknowledged


def covers_range(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Return whether ``ranges`` contain every ID from ``first`` to ``last``."""
    for range_first, range_last in sorted(ranges):
        if range_first <= first <= range_last:
            first = range_last + 1
    return first > last


def flag_acknowledged(gap: StreamGap, ranges: Sequence[tuple[int, int]]) -> Iterator[StreamGap]:
    """Yield the parts of ``gap`` inside and outside ``ranges``, with a flag on the parts inside.

    A gap that is no fault stays whole, without a flag.
    """
    if gap.gap_class not in FAULT_CLASSES:
        yield gap
        return
    start = gap.first
    for first, last in sorted(ranges):
        if last < start or first > gap.last:
            continue
        if first > start:
            yield replace(gap, first=start, last=first - 1)
        end = min(last, gap.last)
        yield replace(gap, first=max(first, start), last=end, flags=(*gap.flags, ACKNOWLEDGED_FLAG))
        start = end + 1
    if start <= gap.last:
        yield replace(gap, first=start)
