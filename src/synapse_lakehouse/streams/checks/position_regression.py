"""Whether a stream is behind where the release before saw it, and nobody has acknowledged that. Pure.

A backup that was restored, or a failover that lost the last transactions, takes positions back; Synapse never does. The
ids between now and then will be given out again, for other rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.streams.checks.acknowledged import AcknowledgedIds, covers_range
from synapse_lakehouse.streams.checks.sequences import PositionRegression, StreamProgress, find_regressions


def record_regressions(
    declared: Catalogue,
    positions: Iterable[dict[str, Any]],
    before: Iterable[Mapping[str, Any]],
    acknowledged: AcknowledgedIds,
) -> None:
    """Enter into rows of ``audit.stream_positions`` what went back since the release whose rows are ``before``."""
    known = {row["stream"]: row for row in before}
    for row in positions:
        name = row["stream"]
        fell = _falls(declared.stream(name), known[name], row) if name in known else []
        row["went_back"] = [str(one) for one in fell if not _is_acknowledged(one, acknowledged.get(name, ()))]


def _falls(stream: Stream, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[PositionRegression]:
    found = find_regressions(stream, StreamProgress.of_row(before), StreamProgress.of_row(now))
    was, bound = now["previous_bound"], now["safe_bound"]
    if None not in (was, bound) and stream.direction * bound < stream.direction * was:
        found.append(PositionRegression("the safe bound", was, bound))
    return found


def _is_acknowledged(fall: PositionRegression, ranges: Sequence[tuple[int, int]]) -> bool:
    return covers_range(ranges, abs(fall.now) + 1, abs(fall.was))
