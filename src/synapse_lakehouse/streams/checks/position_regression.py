"""Find streams whose position regressed since the previous release, unless the operator acknowledged it. Pure.

Synapse never moves positions back. They move back if a backup is restored, or if a failover lost the last transactions.
Synapse will assign the stream IDs between the present and the earlier position again, to other rows.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.streams.checks.operator_acknowledgements import AcknowledgedIds, covers_range
from synapse_lakehouse.streams.checks.sequences import PositionRegression, StreamProgress, find_regressions


def find_unacknowledged_regressions(
    declared: Catalogue,
    positions: Iterable[Mapping[str, Any]],
    previous_positions: Iterable[Mapping[str, Any]],
    acknowledged: AcknowledgedIds,
) -> dict[str, list[str]]:
    """Return the regressions by stream, from this run's and the previous rows of ``audit.stream_positions``."""
    previous = {row["stream"]: row for row in previous_positions}
    regressions = {}
    for row in positions:
        name = row["stream"]
        all_regressions = _regressions(declared.stream(name), previous[name], row) if name in previous else []
        ranges = acknowledged.get(name, ())
        regressions[name] = [
            str(regression)
            for regression in all_regressions
            if not covers_range(ranges, abs(regression.now) + 1, abs(regression.before))
        ]
    return regressions


def _regressions(stream: Stream, previous: Mapping[str, Any], now: Mapping[str, Any]) -> list[PositionRegression]:
    regressions = find_regressions(stream, StreamProgress.from_row(previous), StreamProgress.from_row(now))
    before, bound = now["previous_bound"], now["safe_bound"]
    if None not in (before, bound) and stream.direction * bound < stream.direction * before:
        regressions.append(PositionRegression("the safe bound", before, bound))
    return regressions
