"""Compute which tokens of each source a run compares with bronze.

A source is a writer of a stream in one tap dialect. Tokens count upwards; in streams with negative IDs they are the IDs
without the sign. The first compared token follows the last token that the previous run compared. The last compared
token is the tap's position or the stream's safe bound, whichever is lower.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

from synapse_lakehouse.replication.protocol.stream_tokens import lowest_positions

Key = tuple[str, str, str | None]
"""Dialect, stream and instance."""

OVERLAP: Final = timedelta(minutes=10)
"""A run reads again the commands that were received in this period before the last read command. Clocks may differ."""

MAX_RANGES: Final = 20
"""Maximum number of missing ranges that are recorded for each source, side and reason."""

NEVER_ANNOUNCED: Final = "never_announced"
"""Reason for a stored row that the tap did not receive, and that is in no ``GAP``. For a row in a ``GAP``, the cause in
that command is the reason."""

NOT_COPIED: Final = "not_copied"
"""Reason for a received row that is missing in the lake: no table of the stream is copied."""


@dataclass(frozen=True)
class TapPositions:
    """Positions and times of a tap's first and last commit, among the commands that the run reads."""

    first: Mapping[tuple[str, str | None], int]
    last: Mapping[tuple[str, str | None], int]
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class Window:
    """The tokens of a source that a run compares: the tokens after ``after`` and up to ``upto``.

    ``bound``: the stream's safe bound, or None. ``listened_from``: the token after which the tap began to listen.
    ``read_from``: earlier runs read all commands up to this time; None without an earlier run. ``read_until``: time of
    the tap's last commit.
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


def compute_read_start_times(previous: Mapping[Key, Mapping[str, Any]]) -> dict[str, datetime]:
    """Return, by dialect, a time before the first command that was not compared.

    :param previous: the latest rows of ``audit.replication_coverage``.
    """
    starts: dict[str, datetime] = {}
    for (dialect, _, _), row in previous.items():
        start = min(row["open_since"] or row["read_until"], row["read_until"]) - OVERLAP
        starts[dialect] = min(starts.get(dialect, start), start)
    return starts


def compute_windows(
    previous: Mapping[Key, Mapping[str, Any]],
    taps: Mapping[str, TapPositions],
    first_tokens: Mapping[Key, int],
    bounds: Mapping[str, int | None],
) -> Iterator[Window]:
    """Yield the window of each source that has positions.

    If the last compared commit of a tap is missing, the tap was started again without its history. Then the window
    starts at the first position of the new history. A writer without a first position had written nothing until then.
    Tokens of a stream without a bound are skipped, because it is unknown when they are complete.

    :param previous: the latest rows of ``audit.replication_coverage``.
    :param taps: positions by dialect.
    :param first_tokens: by source, the last token before its first command.
    :param bounds: safe bounds of the compared streams; None without one.
    """
    numbers = count()
    for dialect, tap in sorted(taps.items()):
        listened_from = lowest_positions(tap.first)
        for (stream, instance), position in sorted(tap.last.items(), key=str):
            if stream not in bounds:
                continue
            key = dialect, stream, instance
            former = previous.get(key)
            if former and tap.first_at <= former["read_until"]:
                start, after, read_from = former["listened_from"], former["upto"], former["read_until"]
            else:
                first_position = tap.first.get((stream, instance), listened_from.get(stream, position))
                start = min(first_position, first_tokens.get(key, position))
                after, read_from = start, None
            bound = bounds[stream]
            if bound is None:
                after = max(after, position)
            upto = after if bound is None else max(after, min(bound, position))
            yield Window(next(numbers), *key, start, after, upto, bound, read_from, tap.last_at)
