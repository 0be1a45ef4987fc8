"""Compare a stream's sequence with its stored positions and rows, as Synapse does when it starts.

``synapse.storage.util.sequence``: Synapse refuses to start if a position is beyond the sequence. If rows are beyond it,
Synapse advances the sequence at its start; until then it assigns IDs that are already taken. Repairs are SQL statements
for an operator to review.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from synapse_lakehouse.catalogue import StartupSequence, Stream
from synapse_lakehouse.streams.positions.safe_bound import find_regressed_writers

_LOGGED_AHEAD: Final = 32
"""Values by which PostgreSQL logs a sequence ahead (SEQ_LOG_VALS in sequence.c); a standby shows the logged value."""


@dataclass(frozen=True)
class StreamProgress:
    """Progress of a stream.

    ``last_allocated_id``: last ID that the sequence assigned, 0 if none; sequences count up even for negative IDs.
    ``positions``: position by writer, as in ``stream_positions``. ``furthest``: the furthest ID by table.
    ``may_be_ahead``: the values may come from a standby, so ``last_allocated_id`` may be up to 32 too high.
    """

    last_allocated_id: int
    positions: Mapping[str, int]
    furthest: Mapping[str, int]
    may_be_ahead: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Convert a row of ``audit.stream_positions``, which does not record whether it was read from a standby."""
        last_allocated_id = row["sequence_last_value"] - (not row["sequence_is_called"])
        return cls(last_allocated_id, dict(row["writers"]), {}, may_be_ahead=True)


@dataclass(frozen=True)
class SequenceFault:
    """A fault, and the SQL that repairs it. An operator reviews the SQL and runs it while Synapse is stopped."""

    message: str
    repair: str


def find_sequence_faults(stream: Stream | StartupSequence, progress: StreamProgress) -> Iterator[SequenceFault]:
    """Find contradictions between a sequence, the stored positions and the rows; the worst first."""
    sign = stream.direction
    wrong_sign = {writer: position for writer, position in progress.positions.items() if sign * position < 0}
    ahead = {
        writer: position
        for writer, position in progress.positions.items()
        if sign * position > progress.last_allocated_id
    }
    if ahead:
        consequence = "Synapse will refuse to start" if sign > 0 else "Synapse will assign IDs a second time"
        yield SequenceFault(
            f"The sequence {stream.sequence} has assigned IDs up to {progress.last_allocated_id}, but stream_positions "
            f"contains {_listed(ahead)}. {consequence}.",
            _setval(stream.sequence, _furthest(progress, sign)),
        )
    rows = {
        table: furthest for table, furthest in progress.furthest.items() if sign * furthest > progress.last_allocated_id
    }
    if rows:
        yield SequenceFault(
            f"The sequence {stream.sequence} has assigned IDs up to {progress.last_allocated_id}, but there are rows "
            f"with {_listed(rows)}. Synapse assigns IDs that are taken until it is restarted.",
            _setval(stream.sequence, _furthest(progress, sign)),
        )
    if wrong_sign:
        side = "below" if sign < 0 else "above"
        deletes = (
            f"delete from stream_positions where stream_name = {_literal(stream.stream_positions or '')}"  # noqa: S608
            f" and instance_name = {_literal(writer)};"
            for writer in sorted(wrong_sign)
        )
        yield SequenceFault(
            f"Positions of {stream.name} must be {side} zero, but stream_positions contains {_listed(wrong_sign)}.",
            "\n".join(deletes),
        )


@dataclass(frozen=True)
class PositionRegression:
    """A position, the sequence or the safe bound is behind its earlier value."""

    name: str
    before: int
    now: int

    def __str__(self) -> str:
        return f"{self.name} from {self.before} to {self.now}"


def find_regressions(stream: Stream, before: StreamProgress, now: StreamProgress) -> list[PositionRegression]:
    """Find positions, and the sequence, that are behind ``before``. A standby may have shown the sequence too high."""
    writers = find_regressed_writers(before.positions, now.positions, sign=stream.direction)
    regressions = [PositionRegression(writer, before.positions[writer], now.positions[writer]) for writer in writers]
    tolerance = _LOGGED_AHEAD if before.may_be_ahead or now.may_be_ahead else 0
    if before.last_allocated_id > now.last_allocated_id + tolerance:
        regressions.append(PositionRegression(stream.sequence, before.last_allocated_id, now.last_allocated_id))
    return regressions


def check_regression(stream: Stream, before: StreamProgress, now: StreamProgress) -> SequenceFault | None:
    """Report a position or sequence that is behind ``before``: the database was set back.

    :param before: the earlier progress; its ``furthest`` is not compared.
    """
    sign = stream.direction
    regressions = find_regressions(stream, before, now)
    if not regressions:
        return None
    furthest = max(_furthest(before, sign), _furthest(now, sign))
    return SequenceFault(
        f"Synapse's database was set back to an earlier state: {stream.name}: {', '.join(map(str, regressions))}. "
        f"A backup was restored, or a failover lost the last transactions. IDs up to {sign * furthest} were already "
        "assigned, and Synapse will assign them again, to other rows.",
        _setval(stream.sequence, furthest),
    )


def merge_furthest(progresses: Iterable[StreamProgress]) -> StreamProgress:
    """Return the furthest position of each writer, and the furthest sequence value, in several progresses."""
    positions: dict[str, int] = {}
    last_allocated_id = 0
    for progress in progresses:
        last_allocated_id = max(last_allocated_id, progress.last_allocated_id)
        for writer, position in progress.positions.items():
            positions[writer] = max(positions.get(writer, position), position, key=abs)
    return StreamProgress(last_allocated_id, positions, {}, may_be_ahead=True)


def _furthest(progress: StreamProgress, sign: int) -> int:
    ids = [sign * furthest for furthest in (*progress.positions.values(), *progress.furthest.values())]
    return max([progress.last_allocated_id, *ids])


def _setval(sequence: str, last: int) -> str:
    return f"select setval({_literal(sequence)}, {last});"


def _listed(ids: Mapping[str, int]) -> str:
    return ", ".join(f"{stream_id} of {name}" for name, stream_id in sorted(ids.items()))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
