"""Compare a stream's sequence with its stored positions and rows, as Synapse does when it starts.

Synapse refuses to start if a position is beyond the sequence (``synapse.storage.util.sequence``). If rows are beyond
the sequence, Synapse assigns IDs that are already used, until it is restarted and advances the sequence. Repairs are
SQL statements that an operator reviews.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from synapse_lakehouse.catalogue import StartupSequence, Stream
from synapse_lakehouse.streams.positions.safe_bound import find_regressed_writers

_LOGGED_AHEAD: Final = 32
"""The WAL contains a sequence's value up to 32 values ahead (SEQ_LOG_VALS), and a standby shows that value."""


@dataclass(frozen=True)
class StreamProgress:
    """Progress of a stream.

    * ``last_allocated_id``: last value that the sequence assigned, 0 if none. It counts up, even for negative IDs.
    * ``positions``: position by writer, as in ``stream_positions``.
    * ``furthest``: the ID furthest from zero, by table.
    * ``may_be_ahead``: whether ``last_allocated_id`` may be up to 32 too high, because a standby may have returned it.
    """

    last_allocated_id: int
    positions: Mapping[str, int]
    furthest: Mapping[str, int]
    may_be_ahead: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Convert a row of ``audit.stream_positions``. The row does not record whether the source was a standby."""
        last_allocated_id = row["sequence_last_value"] - (not row["sequence_is_called"])
        return cls(last_allocated_id, dict(row["writers"]), {}, may_be_ahead=True)


@dataclass(frozen=True)
class SequenceFault:
    """A fault, and the SQL that repairs it. An operator reviews the SQL and runs it while Synapse is stopped."""

    message: str
    repair: str


def find_sequence_faults(stream: Stream | StartupSequence, progress: StreamProgress) -> Iterator[SequenceFault]:
    """Yield contradictions between a sequence, the stored positions and the rows, the worst first."""
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
            f"with {_listed(rows)}. Synapse assigns IDs that are already used, until it is restarted.",
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
    """A position, sequence value or safe bound that is behind its earlier value."""

    name: str
    before: int
    now: int

    def __str__(self) -> str:
        return f"{self.name} from {self.before} to {self.now}"


def find_regressions(stream: Stream, before: StreamProgress, now: StreamProgress) -> list[PositionRegression]:
    """Return the positions and the sequence value that are behind ``before``.

    If one of the sequence values is from a standby, a difference of at most 32 is no regression.
    """
    writers = find_regressed_writers(before.positions, now.positions, sign=stream.direction)
    regressions = [PositionRegression(writer, before.positions[writer], now.positions[writer]) for writer in writers]
    tolerance = _LOGGED_AHEAD if before.may_be_ahead or now.may_be_ahead else 0
    if before.last_allocated_id > now.last_allocated_id + tolerance:
        regressions.append(PositionRegression(stream.sequence, before.last_allocated_id, now.last_allocated_id))
    return regressions


def check_regression(stream: Stream, before: StreamProgress, now: StreamProgress) -> SequenceFault | None:
    """Return a fault if the database was set back, so that a position or the sequence is behind ``before``; else None.

    :param before: the earlier progress; its ``furthest`` is not compared.
    """
    sign = stream.direction
    regressions = find_regressions(stream, before, now)
    if not regressions:
        return None
    furthest = max(_furthest(before, sign), _furthest(now, sign))
    return SequenceFault(
        f"Synapse's database was set back to an earlier state. Regressions of {stream.name}: "
        f"{', '.join(map(str, regressions))}. A backup was restored, or a failover lost the last transactions. IDs up "
        f"to {sign * furthest} were already assigned, and Synapse will assign them again, to other rows.",
        _setval(stream.sequence, furthest),
    )


def merge_furthest(progresses: Iterable[StreamProgress]) -> StreamProgress:
    """Return one progress with each writer's furthest position and the furthest sequence value."""
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
