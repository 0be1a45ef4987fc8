"""What a tap heard, held against the rows that are there: which ids are to be compared, and how.

Tokens are those of the wire, which count upwards: of streams with negative ids, the ids without their sign. Every
source, a writer of a stream as one tap tells it, has a cursor: up to it, what it wrote has been compared. A run moves
the cursor to where the tap stands, and never beyond the stream's safe bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from synapse_lakehouse.replication.protocol.stream_tokens import lowest

Key = tuple[str, str, str | None]
"""Dialect, stream and instance."""

SLACK: Final = timedelta(minutes=10)
"""So much of what was read before is read again: clocks are no proof."""

NAMED: Final = 20
"""Ranges of ids that are listed of a source, for each reason that they are missing."""


NEVER_ANNOUNCED: Final = "never_announced"
"""Why a row is missing on the wire: nothing explains it. Rows in a ``GAP`` are missing for what that says."""

NOT_COPIED: Final = "not_copied"
"""Why a row is missing in the lake: none of the stream's tables is copied."""


@dataclass(frozen=True)
class Heard:
    """What a tap's commits say: its positions in the first that was read, and in the last; when these were made."""

    first: Mapping[tuple[str, str | None], int]
    last: Mapping[tuple[str, str | None], int]
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class Window:
    """Tokens of a source after ``after`` and up to ``upto`` that are compared now.

    ``bound``: of the stream; None if there is none now. ``listened_from``: the token after which the tap began to
    listen. ``read_from``: what was received later was not read by an earlier run; None: nothing was. ``read_until``:
    when the tap made its last commit.
    """

    number: int
    dialect: str
    stream: str
    instance: str | None
    listened_from: int
    after: int
    upto: int
    bound: int | None
    read_from: datetime | None
    read_until: datetime


def since(known: Mapping[Key, Mapping[str, Any]]) -> dict[str, datetime]:
    """By dialect, from when on commands are to be read, so that nothing is left out that was not compared yet."""
    found: dict[str, datetime] = {}
    for (dialect, _, _), row in known.items():
        begin = min(row["open_since"] or row["read_until"], row["read_until"]) - SLACK
        found[dialect] = min(found.get(dialect, begin), begin)
    return found


def windows(
    known: Mapping[Key, Mapping[str, Any]],
    taps: Mapping[str, Heard],
    firsts: Mapping[Key, int],
    bounds: Mapping[str, int | None],
) -> Iterator[Window]:
    """What is to be compared now of every source that has positions.

    A tap whose last commit is not found any more began anew, and what it missed meanwhile is nobody's fault. A writer
    that came up later wrote nothing before its stream was listened to. What a stream without a bound says is passed
    over, as nobody knows when it would be closed.

    :param known: the latest rows of ``audit.replication_coverage``.
    :param taps: what was read of each tap, by dialect.
    :param firsts: by source, the token after which its first command follows.
    :param bounds: safe bounds of the streams that are compared; None where there is none now.
    """
    numbers = iter(range(1_000_000))
    for dialect, tap in sorted(taps.items()):
        listened = lowest(tap.first)
        for (stream, instance), position in sorted(tap.last.items(), key=str):
            if stream not in bounds:
                continue
            key = dialect, stream, instance
            former = known.get(key)
            if former and tap.first_at <= former["read_until"]:
                begin, after, read_from = former["listened_from"], former["upto"], former["read_until"]
            else:
                begin = min(
                    tap.first.get((stream, instance), listened.get(stream, position)), firsts.get(key, position)
                )
                after, read_from = begin, None
            bound = bounds[stream]
            if bound is None:
                after = max(after, position)
            upto = after if bound is None else max(after, min(bound, position))
            yield Window(next(numbers), *key, begin, after, upto, bound, read_from, tap.last_at)
