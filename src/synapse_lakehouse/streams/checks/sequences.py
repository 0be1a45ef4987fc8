"""How a stream's sequence, stored positions and rows have to stand to each other: what Synapse checks when it starts.

``synapse.storage.util.sequence``: a position beyond the sequence makes Synapse refuse to start; rows beyond it make it
move the sequence on, but until then ids are given out that are taken. Repairs are printed for people to review.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from synapse_lakehouse.catalogue import StartupSequence, Stream
from synapse_lakehouse.streams.positions.safe_bound import find_regressed_writers

_LOGGED_AHEAD: Final = 32
"""Values that PostgreSQL logs a sequence ahead (SEQ_LOG_VALS in sequence.c), which is where a standby sees it."""


@dataclass(frozen=True)
class StreamProgress:
    """``handed_out``: the last id that the sequence gave out, 0 if none; sequences count up whatever the ids' sign.

    ``positions``: by writer, as ``stream_positions`` has them; ``furthest``: the furthest id by table.
    ``may_be_ahead``: a standby was asked, or it is not known that none was, so ``handed_out`` is up to 32 too high.
    """

    handed_out: int
    positions: Mapping[str, int]
    furthest: Mapping[str, int]
    may_be_ahead: bool = False

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """How far a run saw a stream: a row of ``audit.stream_positions``. It does not say whether of a standby."""
        handed_out = row["sequence_last_value"] - (not row["sequence_is_called"])
        return cls(handed_out, dict(row["writers"]), {}, may_be_ahead=True)


@dataclass(frozen=True)
class SequenceFault:
    """What is wrong, and the SQL that mends it, to be reviewed and run while all of Synapse is stopped."""

    message: str
    repair: str


def find_sequence_faults(stream: Stream | StartupSequence, now: StreamProgress) -> Iterator[SequenceFault]:
    """What does not fit together in a stream, or a sequence of none, worst first."""
    sign = stream.direction
    wrong = {writer: position for writer, position in now.positions.items() if sign * position < 0}
    ahead = {writer: position for writer, position in now.positions.items() if sign * position > now.handed_out}
    if ahead:
        refuses = "Synapse will refuse to start" if sign > 0 else "ids will be given out again"
        yield SequenceFault(
            f"{stream.sequence} is inconsistent with stream_positions: it has handed out {now.handed_out}, but "
            f"{_listed(ahead)} is stored as complete. {refuses}.",
            _setval(stream.sequence, _end(now, sign)),
        )
    rows = {table: one for table, one in now.furthest.items() if sign * one > now.handed_out}
    if rows:
        yield SequenceFault(
            f"{stream.sequence} has handed out {now.handed_out}, but {_listed(rows)} is there. Until Synapse is "
            "restarted and moves it on, it gives out ids that are taken.",
            _setval(stream.sequence, _end(now, sign)),
        )
    if wrong:
        side = "below" if sign < 0 else "above"
        deletes = (
            f"delete from stream_positions where stream_name = {_literal(stream.stream_positions or '')}"  # noqa: S608
            f" and instance_name = {_literal(writer)};"
            for writer in sorted(wrong)
        )
        yield SequenceFault(
            f"Positions of {stream.name} lie {side} zero, but {_listed(wrong)} does not.", "\n".join(deletes)
        )


@dataclass(frozen=True)
class PositionRegression:
    """A position, the sequence or the safe bound is behind where it was."""

    name: str
    was: int
    now: int

    def __str__(self) -> str:
        return f"{self.name} from {self.was} to {self.now}"


def find_regressions(stream: Stream, then: StreamProgress, now: StreamProgress) -> list[PositionRegression]:
    """What is behind where it was, of the positions and the sequence, which a standby may have shown ahead."""
    writers = find_regressed_writers(then.positions, now.positions, sign=stream.direction)
    found = [PositionRegression(writer, then.positions[writer], now.positions[writer]) for writer in writers]
    allowed = _LOGGED_AHEAD if then.may_be_ahead or now.may_be_ahead else 0
    if then.handed_out > now.handed_out + allowed:
        found.append(PositionRegression(stream.sequence, then.handed_out, now.handed_out))
    return found


def check_regression(stream: Stream, then: StreamProgress, now: StreamProgress) -> SequenceFault | None:
    """Whether a position or the sequence is behind where it was: the database is not the one that it was.

    :param then: what the lake knows from before; ``furthest`` is not looked at.
    """
    sign = stream.direction
    fell = find_regressions(stream, then, now)
    if not fell:
        return None
    furthest = max(_end(then, sign), _end(now, sign))
    return SequenceFault(
        f"THE DATABASE WENT BACK: {stream.name}: {', '.join(map(str, fell))}. A backup was restored, or a failover "
        f"lost the last transactions. Ids up to {sign * furthest} were given out once and will be given out again, for "
        "other rows.",
        _setval(stream.sequence, furthest),
    )


def merge_furthest(standings: Iterable[StreamProgress]) -> StreamProgress:
    """How far a stream ever was in several standings."""
    positions: dict[str, int] = {}
    handed_out = 0
    for one in standings:
        handed_out = max(handed_out, one.handed_out)
        for writer, position in one.positions.items():
            positions[writer] = max(positions.get(writer, position), position, key=abs)
    return StreamProgress(handed_out, positions, {}, may_be_ahead=True)


def _end(standing: StreamProgress, sign: int) -> int:
    known = [sign * one for one in (*standing.positions.values(), *standing.furthest.values())]
    return max([standing.handed_out, *known])


def _setval(sequence: str, last: int) -> str:
    return f"select setval({_literal(sequence)}, {last});"


def _listed(ids: Mapping[str, int]) -> str:
    return ", ".join(f"{one} of {name}" for name, one in sorted(ids.items()))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
