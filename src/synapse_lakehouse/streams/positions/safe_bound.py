"""How far a stream is complete: pure arithmetic on positions and ids.

Semantics are those of Synapse's ``MultiWriterIdGenerator``: a writer's row in ``stream_positions`` is written after its
rows, so every row of that writer with an id up to it is committed. Streams that count downwards are mirrored.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FIRST_ID: Final = 1
"""The id that counts as seen before anything was written: a new sequence gives the next one."""


class BoundRule(StrEnum):
    """What gave a safe bound, or why there is none."""

    CONFIGURED = "configured"
    """All configured writers have positions."""
    ASSUMED = "assumed"
    """The writers were guessed from positions and rows: one that never wrote may be missing."""
    UNKNOWN_WRITER = "unknown_writer"
    """A writer that is not configured has written since the bound before."""
    UNCONFIGURED_WRITER = "unconfigured_writer"
    """A writer that is not configured has a position and has not written since. It may be idle, or removed."""
    MISSING_WRITER = "missing_writer"
    """A writer has no position yet, so what it is writing now cannot be bounded."""
    HELD = "held"
    """A table of the stream was left as it was, so the bound that was accepted before stays."""
    UNUSED = "unused"
    """The sequence never handed out an id."""
    NO_POSITIONS = "no_positions"
    """Synapse keeps no positions of this stream."""


@dataclass(frozen=True)
class SafeBound:
    """``minimum``: the least position over all known writers; None without one. ``missing``: writers without a
    position, ``unknown``: writers that are not configured, and with the rule ``UNKNOWN_WRITER`` those of them that have
    written since."""

    minimum: int | None
    rule: BoundRule
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def compute_bound(
    positions: Mapping[str, int],
    configured: frozenset[str] | None,
    seen: Iterable[str],
    *,
    sign: int,
    is_used: bool,
    before: Mapping[str, int] | None = None,
) -> SafeBound:
    """The id up to which all known writers are complete: those that are configured, and all that have a position.

    A writer that is not configured may write all the same: its worker may not have been restarted since it was removed,
    or nobody added it to the configuration of the lakehouse. Of a writer that was removed Synapse deletes the position
    when a process starts that has the new list of writers (``MultiWriterIdGenerator._load_current_ids``), so that its
    position does not hold the bound back for long.

    :param positions: position by writer, as ``stream_positions`` holds it (negative where the stream is).
    :param configured: writers that may write, or None if they are not known.
    :param seen: other writers that may be at work, which stand in for ``configured`` when that is not known.
    :param sign: 1, or -1 for a stream that counts downwards.
    :param is_used: whether the stream's sequence was ever called.
    :param before: the positions when the bound before was accepted; None if there was none.
    """
    if not positions and not is_used:
        return SafeBound(None, BoundRule.UNUSED)
    writers = frozenset(configured if configured is not None else {*positions, *seen})
    others = tuple(sorted(set(positions) - writers))
    advanced = () if before is None else tuple(one for one in others if _has_advanced(positions, before, one, sign))
    if missing := tuple(sorted(writers - set(positions))):
        # Before any bound was accepted nobody knows who is at work: the names may not fit.
        return SafeBound(None, BoundRule.MISSING_WRITER, missing, others if before is None else advanced)
    if not writers:
        return SafeBound(None, BoundRule.MISSING_WRITER)
    minimum = sign * min(sign * position for position in positions.values())
    if advanced:
        return SafeBound(minimum, BoundRule.UNKNOWN_WRITER, unknown=advanced)
    if others:
        return SafeBound(minimum, BoundRule.UNCONFIGURED_WRITER, unknown=others)
    return SafeBound(minimum, BoundRule.ASSUMED if configured is None else BoundRule.CONFIGURED)


def _has_advanced(positions: Mapping[str, int], before: Mapping[str, int], writer: str, sign: int) -> bool:
    return writer not in before or sign * positions[writer] > sign * before[writer]


def find_missing_writers(
    positions: Collection[str], before: Collection[str], missed_before: Collection[str]
) -> set[str]:
    """Writers that lost their position and may be at work without it, where nobody told the lakehouse who writes.

    Synapse deletes positions of writers that are not in its list when it starts. Each other that has come stands for
    one that is gone and was renamed, also where they come one by one, as they first write; which of several it stands
    for is not known. The rest is missed: a process may have been started with a wrong list.

    :param positions: writers with a position.
    :param before: the same when that was asked before.
    :param missed_before: what this was then.
    """
    known = {*before, *missed_before}
    gone, new = known - set(positions), set(positions) - known
    return set(sorted(gone)[len(new) :])


def extend_without_gap(minimum: int, ids: Iterable[int], *, sign: int) -> int:
    """``minimum``, pushed through the run of ids that follow it without a gap: their rows are known to be committed."""
    end = sign * minimum
    for one in sorted(sign * one for one in ids):
        if one == end + 1:
            end = one
        elif one > end:
            break
    return sign * end


def find_regressed_writers(before: Mapping[str, int], positions: Mapping[str, int], *, sign: int) -> list[str]:
    """Writers whose position is behind where it was, which Synapse never lets happen."""
    return sorted(one for one in positions.keys() & before.keys() if sign * positions[one] < sign * before[one])


def compute_closed_end(
    minimum: int, accepted: int | None, positions: Mapping[str, int], before: Mapping[str, int], *, sign: int
) -> int:
    """The id up to which a stream was closed already, or is by now: where its gapless run goes on from.

    What was closed stays closed, although rows beyond the ``minimum`` that closed it are purged later. But where a
    writer's position went back, the database is not the one it was, and nothing that was known of it holds.

    :param minimum: the least position of the writers.
    :param accepted: the bound that was accepted before.
    :param positions: position by writer.
    :param before: the same when that bound was accepted.
    """
    if accepted is None or find_regressed_writers(before, positions, sign=sign):
        return minimum
    return sign * max(sign * minimum, sign * accepted)
