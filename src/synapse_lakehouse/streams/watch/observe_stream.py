"""Observe a stream, and compute for how long IDs have been open and writers have not advanced. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.streams.checks.sequences import SequenceFault, StreamProgress, check_regression, merge_furthest
from synapse_lakehouse.streams.positions.safe_bound import (
    BoundRule,
    SafeBound,
    compute_bound,
    compute_closed_end,
    extend_without_gap,
    find_missing_writers,
)


@dataclass(frozen=True)
class StreamObservation:
    """A stream at the time ``watched_at``: a row of ``audit.stream_watch``.

    * ``safe_bound``, ``rule``: as in ``audit.stream_positions``.
    * ``last_allocated_id``: last ID of the sequence.
    * ``open_since``: time of the first observation in which the next ID after the bound was allocated and not closed.
      None if no ID is open.
    * ``unchanged_since``: for each writer, the time of the first observation with its present position.
    * ``vanished_writers``: writers that lost their position although no configuration removed them.
    * ``furthest_positions``, ``furthest_allocated_id``: the furthest values in the latest release and in all
      observations after it.
    """

    stream: str
    watched_at: datetime
    writers: Mapping[str, int]
    missing_writers: tuple[str, ...]
    safe_bound: int | None
    rule: str
    last_allocated_id: int
    open_since: datetime | None
    unchanged_since: Mapping[str, datetime]
    vanished_writers: tuple[str, ...]
    furthest_positions: Mapping[str, int]
    furthest_allocated_id: int

    @property
    def lag(self) -> int | None:
        """Number of IDs that are assigned beyond the bound."""
        return None if self.safe_bound is None else max(self.last_allocated_id - abs(self.safe_bound), 0)

    def behind(self, writer: str) -> int:
        """Number of IDs that are assigned beyond the writer's position. An idle writer is behind without a fault."""
        return max(self.last_allocated_id - abs(self.writers[writer]), 0)


def find_bound_and_closed_end(
    stream: Stream,
    positions: Mapping[str, int],
    last_allocated_id: int,
    configured: frozenset[str] | None,
    before: StreamObservation | None,
) -> tuple[SafeBound, int | None]:
    """Return the bound of ``stream``, and its closed end according to its positions and the previous observation.

    The closed end is None if nothing bounds the stream. It goes back once, to the position nearest to zero, if the
    previous bound was provisional and the writers are configured now. The parameters are those of
    :func:`observe_stream`.
    """
    missing_writers = find_missing_writers(positions, before.writers, before.vanished_writers) if before else set()
    # Configured writers may have open IDs at or below a provisional bound.
    is_provisional = before is not None and before.rule == BoundRule.PROVISIONAL and configured is not None
    sign, accepted = stream.direction, before.safe_bound if before and not is_provisional else None
    previous = before.writers if before else None
    bound = compute_bound(
        positions, configured, missing_writers, sign=sign, is_used=last_allocated_id > 0, before=previous
    )
    if bound.minimum is None:
        return bound, None
    return bound, compute_closed_end(bound.minimum, accepted, positions, previous or {}, sign=sign)


def observe_stream(
    stream: Stream,
    positions: Mapping[str, int],
    last_allocated_id: int,
    beyond: Collection[int],
    configured: frozenset[str] | None,
    before: StreamObservation | None,
    now: datetime,
    released: StreamProgress | None = None,
) -> StreamObservation:
    """Return the observation of ``stream`` at ``now``.

    :param positions: position by writer, as in ``stream_positions``.
    :param last_allocated_id: last ID of the sequence, 0 if none. It counts up, even for negative IDs.
    :param beyond: IDs of the first rows beyond the closed end, see :func:`find_bound_and_closed_end`.
    :param configured: the configured writers; None if they are derived from the writers seen so far.
    :param before: the previous observation.
    :param released: the stream's progress in a release that is newer than ``before``. It replaces the furthest values.
    """
    bound, start = find_bound_and_closed_end(stream, positions, last_allocated_id, configured, before)
    end = None if start is None else extend_without_gap(start, beyond, sign=stream.direction)
    is_open = end is not None and last_allocated_id > abs(end)
    was_open = before is not None and before.safe_bound == end and before.open_since is not None
    last = [StreamProgress(before.last_allocated_id, before.writers, {})] if before else []
    furthest = merge_furthest([StreamProgress(last_allocated_id, positions, {}), *last, *_reference(before, released)])
    return StreamObservation(
        stream=stream.name,
        watched_at=now,
        writers=positions,
        missing_writers=bound.missing,
        safe_bound=end,
        rule=(bound.rule if stream.stream_positions else BoundRule.NO_POSITIONS).value,
        last_allocated_id=last_allocated_id,
        open_since=(before.open_since if before and was_open else now) if is_open else None,
        unchanged_since={
            writer: before.unchanged_since[writer] if before and before.writers.get(writer) == position else now
            for writer, position in positions.items()
        },
        vanished_writers=tuple(sorted(_vanished(positions, configured, before))),
        furthest_positions=furthest.positions,
        furthest_allocated_id=furthest.last_allocated_id,
    )


def _vanished(
    positions: Collection[str], configured: frozenset[str] | None, before: StreamObservation | None
) -> set[str]:
    if before is None:
        return set()
    if configured is None:
        return find_missing_writers(positions, before.writers, before.vanished_writers)
    return {*before.writers, *before.vanished_writers}.intersection(configured).difference(positions)


def find_regression(stream: Stream, observation: StreamObservation) -> SequenceFault | None:
    """Return a fault if ``stream`` is behind its furthest progress, else None. A release replaces this progress."""
    furthest = StreamProgress(observation.furthest_allocated_id, observation.furthest_positions, {}, may_be_ahead=True)
    return check_regression(stream, furthest, StreamProgress(observation.last_allocated_id, observation.writers, {}))


def describe_observation(observation: StreamObservation) -> str:
    """Return a line for the log."""
    if observation.safe_bound is None:
        line = f"{observation.stream}: no bound ({observation.rule.replace('_', ' ')})"
    else:
        line = f"{observation.stream}: complete up to {observation.safe_bound:,}, {observation.lag:,} IDs open"
    if observation.open_since and observation.open_since < observation.watched_at:
        line += f" for {_minutes(observation.watched_at - observation.open_since)}"
    for writer in sorted(observation.writers) if observation.open_since else ():
        if behind := observation.behind(writer):
            unmoved = observation.watched_at - observation.unchanged_since[writer]
            line += f"; {writer} {behind:,} IDs behind, at the same position for {_minutes(unmoved)}"
    if observation.missing_writers:
        line += f"; without a position: {', '.join(observation.missing_writers)}"
    return line + (f"; vanished: {', '.join(observation.vanished_writers)}" if observation.vanished_writers else "")


def _reference(before: StreamObservation | None, released: StreamProgress | None) -> list[StreamProgress]:
    if released:
        return [released]
    return [StreamProgress(before.furthest_allocated_id, before.furthest_positions, {})] if before else []


def _minutes(span: timedelta) -> str:
    return f"{span / timedelta(minutes=1):,.0f} min"
