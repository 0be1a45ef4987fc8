"""Compute a stream's safe bound from positions and IDs. Pure.

The rules are those of Synapse's ``MultiWriterIdGenerator``. A writer updates its position in ``stream_positions`` after
it committed its rows, so all of its rows with an ID up to the position are committed. Negative IDs count downwards.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

FIRST_ID: Final = 1
"""This ID counts as written from the start, because a new sequence assigns the next ID first."""


class BoundRule(StrEnum):
    """How a safe bound was determined, or why there is none."""

    CONFIGURED = "configured"
    """All configured writers have positions."""
    PROVISIONAL = "provisional"
    """The writers were learned from positions and rows. A writer that is not known may have open IDs below the bound.

    A provisional bound stays provisional after the configuration names the writers, until their positions reach it.
    """
    UNKNOWN_WRITER = "unknown_writer"
    """A writer that is not configured is active: it has written since the previous bound."""
    UNCONFIGURED_WRITER = "unconfigured_writer"
    """A writer that is not configured has a position, but has written nothing since the previous bound, or there is no
    previous bound."""
    MISSING_WRITER = "missing_writer"
    """A configured writer has no position, so its open transactions may have any ID."""
    MISSING_LEARNED_WRITER = "missing_learned_writer"
    """No writers are configured. A learned writer has no position, or no writer is known."""
    NOT_COPIED = "not_copied"
    """A table of the stream was not copied, so the bound of the previous release stays."""
    UNUSED = "unused"
    """The sequence never assigned an ID."""
    NO_POSITIONS = "no_positions"
    """Synapse stores no positions of this stream."""


@dataclass(frozen=True)
class SafeBound:
    """A safe bound, and how it was determined.

    ``minimum``: the position of a known writer that is nearest to zero, or the previous bound with the rule
    ``NOT_COPIED``; None if there is no bound. ``missing``: writers without a position. ``unknown``: writers with a
    position that are not configured. With the rule ``UNCONFIGURED_WRITER``, or without a previous bound, these are all
    such writers, otherwise only those that have written since the previous bound.
    """

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
    """Return the ID up to which all known writers are complete, with the rule and the unusual writers.

    Known writers are the configured writers, or ``seen`` without a configuration, and all writers with a position.
    There is no ID if the stream is unused, if no writer is known, or if a known writer has no position.

    A writer that is not configured may still write, because its worker was not restarted after its removal, or because
    the lakehouse's configuration lacks it. When a process starts with the new list of writers, Synapse deletes the
    positions of removed writers (``MultiWriterIdGenerator._load_current_ids``). Until then, they limit the bound.

    :param positions: position by writer, as in ``stream_positions``: negative in streams that count downwards.
    :param configured: writers that may write; None if they are unknown.
    :param seen: other writers that may be active; used only if ``configured`` is None.
    :param sign: 1, or -1 for a stream that counts downwards.
    :param is_used: whether the stream's sequence was ever called.
    :param before: the positions at the previous bound; None if there was no bound.
    """
    if not positions and not is_used:
        return SafeBound(None, BoundRule.UNUSED)
    writers = frozenset(configured if configured is not None else {*positions, *seen})
    others = tuple(sorted(set(positions) - writers))
    advanced = () if before is None else tuple(name for name in others if _has_advanced(positions, before, name, sign))
    unbounded = BoundRule.MISSING_LEARNED_WRITER if configured is None else BoundRule.MISSING_WRITER
    if missing := tuple(sorted(writers - set(positions))):
        # Before the first bound, any writer may be active, because the configured names may be misspelled.
        return SafeBound(None, unbounded, missing, others if before is None else advanced)
    if not writers:
        return SafeBound(None, unbounded)
    minimum = sign * min(sign * position for position in positions.values())
    if advanced:
        return SafeBound(minimum, BoundRule.UNKNOWN_WRITER, unknown=advanced)
    if others:
        return SafeBound(minimum, BoundRule.UNCONFIGURED_WRITER, unknown=others)
    return SafeBound(minimum, BoundRule.PROVISIONAL if configured is None else BoundRule.CONFIGURED)


def _has_advanced(positions: Mapping[str, int], before: Mapping[str, int], writer: str, sign: int) -> bool:
    return writer not in before or sign * positions[writer] > sign * before[writer]


def find_accepted_rule(row: Mapping[str, Any]) -> str | None:
    """Return the rule of the bound that a release accepted, from its row of ``audit.stream_positions``.

    A run without a bound of its own keeps the bound of the previous release, and the rule of that bound.
    """
    has_own_bound = row["safe_bound"] is not None and row["rule"] != BoundRule.NOT_COPIED
    rule: str | None = row["rule" if has_own_bound else "previous_rule"]
    return rule


def find_missing_writers(
    positions: Collection[str], before: Collection[str], missing_before: Collection[str]
) -> set[str]:
    """Return writers that lost their position and may still be active, for a stream without configured writers.

    When Synapse starts, it deletes the positions of writers that are not in its list. Each new writer counts as the
    successor of one vanished writer; which one is unknown. If more writers vanished than appeared, the others are
    missing, because a process may have been started with a wrong list.

    :param positions: writers with a position.
    :param before: writers with a position at the last check.
    :param missing_before: the result of the last check.
    """
    earlier = {*before, *missing_before}
    missing, new = earlier - set(positions), set(positions) - earlier
    return set(sorted(missing)[len(new) :])


def find_learned_writers(
    row_writers: Collection[str], former_row_writers: Collection[str], missing: Collection[str], unnamed: str
) -> set[str]:
    """Return writers that may be active without a position, for a stream without configured writers.

    A writer stores its position after its first row. So a writer that wrote only new rows may have no position yet. If
    a writer of older rows has no position, the writer was removed. The previous release must contain positions of the
    stream.

    :param row_writers: writers of the rows now. ``former_row_writers``: writers of the rows in the previous release.
    :param missing: the result of :func:`find_missing_writers`.
    :param unnamed: the writer to which rows without a writer are attributed. It changes with the positions.
    """
    return {*missing, *(set(row_writers) - {*former_row_writers, unnamed})}


def extend_without_gap(minimum: int, ids: Iterable[int], *, sign: int) -> int:
    """Return ``minimum``, or the last of the IDs that follow it without a gap. All of these IDs are committed."""
    end = sign * minimum
    for distance in sorted(sign * stream_id for stream_id in ids):
        if distance == end + 1:
            end = distance
        elif distance > end:
            break
    return sign * end


def find_regressed_writers(before: Mapping[str, int], positions: Mapping[str, int], *, sign: int) -> list[str]:
    """Return writers whose position is behind its earlier value. Synapse itself never moves a position back."""
    return sorted(
        writer for writer in positions.keys() & before.keys() if sign * positions[writer] < sign * before[writer]
    )


def compute_closed_end(
    minimum: int, accepted: int | None, positions: Mapping[str, int], before: Mapping[str, int], *, sign: int
) -> int:
    """Return the ID up to which a stream is closed. After this ID, the search for IDs without a gap starts.

    A closed ID stays closed, even if rows above ``minimum`` are purged later. But if a writer's position regressed, the
    database was set back, so the earlier bound does not apply.

    :param minimum: the position of the writers that is nearest to zero.
    :param accepted: the bound of the previous release.
    :param positions: position by writer.
    :param before: the positions at the bound ``accepted``.
    """
    if accepted is None or find_regressed_writers(before, positions, sign=sign):
        return minimum
    return sign * max(sign * minimum, sign * accepted)
