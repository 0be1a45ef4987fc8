"""What one look at a stream tells, together with the look before it: how long something has been open or silent."""

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
    """A stream at ``watched_at``: a row of ``audit.stream_watch``.

    ``safe_bound`` and ``rule``: as in ``audit.stream_positions``. ``handed_out``: the last id of the sequence.
    ``open_since``: when the id next to the bound was first seen handed out and not complete, None where none is.
    ``unmoved_since``: by writer, when its position was first seen to be where it is. ``vanished``: writers that had a
    position once and have none now, although nobody said that they shall write no more. ``furthest_writers`` and
    ``furthest_handed_out``: how far positions and the sequence were since the latest release, and in it.
    """

    stream: str
    watched_at: datetime
    writers: Mapping[str, int]
    missing_writers: tuple[str, ...]
    safe_bound: int | None
    rule: str
    handed_out: int
    open_since: datetime | None
    unmoved_since: Mapping[str, datetime]
    vanished: tuple[str, ...]
    furthest_writers: Mapping[str, int]
    furthest_handed_out: int

    @property
    def lag(self) -> int | None:
        """Ids handed out beyond the bound."""
        return None if self.safe_bound is None else max(self.handed_out - abs(self.safe_bound), 0)

    def behind(self, writer: str) -> int:
        """Ids handed out beyond the writer's position. A writer that is idle falls behind, which harms nobody."""
        return max(self.handed_out - abs(self.writers[writer]), 0)


def find_bound(
    stream: Stream,
    positions: Mapping[str, int],
    handed_out: int,
    configured: frozenset[str] | None,
    before: StreamObservation | None,
) -> tuple[SafeBound, int | None]:
    """What bounds ``stream``, and the id up to which its positions or the look before close it; None: nothing does.

    Parameters are those of :func:`observe_stream`.
    """
    seen = find_missing_writers(positions, before.writers, before.vanished) if before else set()
    sign, accepted = stream.direction, before.safe_bound if before else None
    then = before.writers if before else None
    bound = compute_bound(positions, configured, seen, sign=sign, is_used=handed_out > 0, before=then)
    if bound.minimum is None:
        return bound, None
    return bound, compute_closed_end(bound.minimum, accepted, positions, before.writers if before else {}, sign=sign)


def observe_stream(
    stream: Stream,
    positions: Mapping[str, int],
    handed_out: int,
    beyond: Collection[int],
    configured: frozenset[str] | None,
    before: StreamObservation | None,
    now: datetime,
    released: StreamProgress | None = None,
) -> StreamObservation:
    """What is seen of ``stream`` now.

    :param positions: by writer, as ``stream_positions`` has them.
    :param handed_out: the last id of the sequence, which counts up whatever the sign of the rows' ids; 0 for none.
    :param beyond: ids of the first rows beyond where the stream is :func:`find_bound`.
    :param configured: the writers that may write; None: guessed from those that were ever seen.
    :param before: the look before this one.
    :param released: how far the stream is in a release that was published since; what was seen earlier counts no more.
    """
    bound, start = find_bound(stream, positions, handed_out, configured, before)
    end = None if start is None else extend_without_gap(start, beyond, sign=stream.direction)
    is_open = end is not None and handed_out > abs(end)
    is_still_open = before is not None and before.safe_bound == end and before.open_since is not None
    last = [StreamProgress(before.handed_out, before.writers, {})] if before else []
    ever = merge_furthest([StreamProgress(handed_out, positions, {}), *last, *_reference(before, released)])
    return StreamObservation(
        stream=stream.name,
        watched_at=now,
        writers=positions,
        missing_writers=bound.missing,
        safe_bound=end,
        rule=(bound.rule if stream.stream_positions else BoundRule.NO_POSITIONS).value,
        handed_out=handed_out,
        open_since=(before.open_since if before and is_still_open else now) if is_open else None,
        unmoved_since={
            writer: before.unmoved_since[writer] if before and before.writers.get(writer) == position else now
            for writer, position in positions.items()
        },
        vanished=tuple(sorted(_vanished(positions, configured, before))),
        furthest_writers=ever.positions,
        furthest_handed_out=ever.handed_out,
    )


def _vanished(
    positions: Collection[str], configured: frozenset[str] | None, before: StreamObservation | None
) -> set[str]:
    if before is None:
        return set()
    if configured is None:
        return find_missing_writers(positions, before.writers, before.vanished)
    return {*before.writers, *before.vanished}.intersection(configured).difference(positions)


def find_regression(stream: Stream, look: StreamObservation) -> SequenceFault | None:
    """What of ``stream`` is behind where it was, from when it fell until it is passed, or a release has accepted it."""
    was = StreamProgress(look.furthest_handed_out, look.furthest_writers, {}, may_be_ahead=True)
    return check_regression(stream, was, StreamProgress(look.handed_out, look.writers, {}))


def describe_observation(look: StreamObservation) -> str:
    """``look`` in a line, for a log."""
    if look.safe_bound is None:
        said = f"{look.stream}: no bound ({look.rule.replace('_', ' ')})"
    else:
        said = f"{look.stream}: complete up to {look.safe_bound:,}, {look.lag:,} ids open"
    if look.open_since and look.open_since < look.watched_at:
        said += f" for {_minutes(look.watched_at - look.open_since)}"
    waits = [writer for writer in sorted(look.writers) if look.open_since and look.behind(writer)]
    for writer in waits:
        unmoved = look.watched_at - look.unmoved_since[writer]
        said += f"; {writer} {look.behind(writer):,} behind, unmoved for {_minutes(unmoved)}"
    said += f"; without a position: {', '.join(look.missing_writers)}" if look.missing_writers else ""
    return said + (f"; vanished: {', '.join(look.vanished)}" if look.vanished else "")


def _reference(before: StreamObservation | None, released: StreamProgress | None) -> list[StreamProgress]:
    if released:
        return [released]
    return [StreamProgress(before.furthest_handed_out, before.furthest_writers, {})] if before else []


def _minutes(span: timedelta) -> str:
    return f"{span / timedelta(minutes=1):,.0f} min"
