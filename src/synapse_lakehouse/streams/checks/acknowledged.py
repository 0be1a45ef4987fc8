"""Faults that an operator has looked at, so that a release may be published with them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.streams.gaps.classify import FAULT_CLASSES, StreamGap

ACKNOWLEDGED_FLAG: Final = "acknowledged"
"""Flag of a fault that does not count."""

AcknowledgedIds = Mapping[str, Sequence[tuple[int, int]]]
"""Ranges of ids by stream, as distances."""

_RANGE: Final = re.compile(r"-?(\d{1,18})(?:\.\.-?(\d{1,18}))?")


class AcknowledgedIdsError(LakehouseError):
    """LAKEHOUSE_ACKNOWLEDGED_IDS cannot be understood."""


def parse_acknowledged_ids(catalogue: Catalogue, setting: str) -> AcknowledgedIds:
    """The ids that LAKEHOUSE_ACKNOWLEDGED_IDS names, as in ``events:4711,4800..4810 backfill:-20..-12``.

    :raises AcknowledgedError: on bad syntax or an unknown stream.
    """
    known = {stream.name for stream in catalogue.streams}
    found: dict[str, list[tuple[int, int]]] = {}
    for part in setting.split():
        stream, _, ranges = part.partition(":")
        matches = [_RANGE.fullmatch(one) for one in ranges.split(",")]
        if stream not in known or not all(matches):
            raise AcknowledgedIdsError(
                f"LAKEHOUSE_ACKNOWLEDGED_IDS has {part!r}, which is not of the form stream:id,first..last with one of "
                f"the catalogue's streams ({', '.join(sorted(known))}). Separate several streams by spaces."
            )
        for match in filter(None, matches):
            ends = sorted((int(match[1]), int(match[2] or match[1])))
            found.setdefault(stream, []).append((ends[0], ends[1]))
    return found


def covers_range(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Whether all ids from ``first`` to ``last`` are in ``ranges``."""
    for begins, ends in sorted(ranges):
        if begins <= first <= ends:
            first = ends + 1
    return first > last


def flag_acknowledged(gap: StreamGap, ranges: Sequence[tuple[int, int]]) -> Iterator[StreamGap]:
    """``gap``, cut where ``ranges`` begin and end, what lies in them flagged; gaps that are no faults as they are."""
    if gap.verdict not in FAULT_CLASSES:
        yield gap
        return
    at = gap.first
    for first, last in sorted(ranges):
        if last < at or first > gap.last:
            continue
        if first > at:
            yield replace(gap, first=at, last=first - 1)
        until = min(last, gap.last)
        yield replace(gap, first=max(first, at), last=until, flags=(*gap.flags, ACKNOWLEDGED_FLAG))
        at = until + 1
    if at <= gap.last:
        yield replace(gap, first=at)
