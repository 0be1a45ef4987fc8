"""Track the tokens of each stream on a connection: complete tokens, positions and missed ranges.

A position moves only with the last row of a token. So a client that resumes from the position receives every row once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.replication.protocol.commands import Position, Rdata

REPEATABLE_STREAMS: Final = frozenset({"caches"})
"""Streams whose tokens Synapse may repeat or send out of order: a cache entry can be invalidated twice."""

MEMORY_ONLY_STREAMS: Final = frozenset({"typing", "presence_federation", "federation"})
"""Streams without a table: Synapse keeps their rows in memory, and their tokens restart with Synapse."""

MAX_UNFINISHED_CHARACTERS: Final = 64 << 20
"""Maximum characters in rows of unfinished tokens, about half a million rows. A sender of more rows is faulty."""

WENT_BACK: Final = (
    "the database was restored to an earlier state or failed over, so it allocates these tokens again; rows that were "
    "written before the tap noticed this were not received"
)

Source = tuple[str, str | None]
"""A stream and the instance that writes it; None in the dialect without instances."""


@dataclass(frozen=True, slots=True)
class Update:
    """All rows of one token. ``is_read``: whether the rows were read from the database, not received."""

    stream: str
    instance: str | None
    token: int
    rows: tuple[Any, ...]
    is_read: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class MissedRange:
    """Tokens after ``after`` and up to ``upto`` that were not received; some of them may have no rows."""

    stream: str
    instance: str | None
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Tokens after ``after`` and up to ``upto`` that were not received.

    ``recovered``: number of tokens that were read from the database. ``cause``: why the other tokens may be missing.
    """

    stream: str
    instance: str | None
    after: int
    upto: int
    recovered: int
    cause: str


def lowest_positions(positions: Mapping[Source, int]) -> dict[str, int]:
    """Return the lowest position of each stream among its writers."""
    lowest: dict[str, int] = {}
    for (stream, _), position in positions.items():
        lowest[stream] = min(lowest.get(stream, position), position)
    return lowest


class EndlessTokenError(LakehouseError):
    """Too many rows of one token arrived without its last row."""


class Progress:
    """The position of each source, and the rows of unfinished tokens.

    ``repeated`` counts tokens that were received again and dropped. ``is_connected``: whether commands arrive now.
    """

    def __init__(self, positions: Mapping[Source, int] | None = None) -> None:
        self.positions: dict[Source, int] = dict(positions or {})
        self.repeated = 0
        self.is_connected = False
        self._unfinished_rows: dict[Source, list[Any]] = {}
        self._unfinished_characters: Counter[Source] = Counter()
        self._interrupted_in_memory: set[Source] = set()
        self._received_sources: set[Source] = set()
        self._positions_before_interruption: dict[str, int] = {}
        self._interrupt()

    def add_row(self, command: Rdata) -> Update | None:
        """Add a row and move the position.

        :returns: the token that the row completes; None if rows are still missing, or if the token is a repetition.
        :raises EndlessTokenError: as :meth:`collect_row`.
        """
        update = self.collect_row(command)
        return self.accept(update) if update else None

    def collect_row(self, command: Rdata) -> Update | None:
        """Add a row without moving the position.

        :returns: the token that the row completes; None if rows are still missing.
        :raises EndlessTokenError: if rows of unfinished tokens exceed ``MAX_UNFINISHED_CHARACTERS``.
        """
        source = (command.stream, command.instance)
        if command.token is None:
            self._unfinished_rows.setdefault(source, []).append(command.row)
            self._unfinished_characters[source] += len(repr(command.row))
            if self._unfinished_characters.total() > MAX_UNFINISHED_CHARACTERS:
                count = len(self._unfinished_rows[source])
                raise EndlessTokenError(
                    f"{command.stream}: memory limit reached after {count} rows of a token without its last row"
                )
            return None
        rows = self._unfinished_rows.pop(source, [])
        del self._unfinished_characters[source]
        return Update(command.stream, command.instance, command.token, (*rows, command.row))

    def is_first_token(self, command: Rdata) -> bool:
        """Return whether the row ends a source's first token after an interruption, and no POSITION came before it.

        Call it once per row: later tokens of the source are never the first.
        """
        source = (command.stream, command.instance)
        if command.token is None or source in self._received_sources:
            return False
        self._received_sources.add(source)
        return True

    def missed_in_memory(self, command: Rdata) -> MissedRange | None:
        """Return the tokens that a memory-only stream lost in an interruption before ``command``; None without a loss.

        The lost tokens cannot be read from the database. Missed tokens of other streams are requested again, or read
        from the database.
        """
        source = (command.stream, command.instance)
        position = self.positions.get(source)
        if source not in self._interrupted_in_memory or command.token is None or position is None:
            return None
        self._interrupted_in_memory.discard(source)
        return None if command.token == position + 1 else MissedRange(*source, position, command.token - 1)

    def accept(self, update: Update) -> Update | None:
        """Move the position to ``update`` and return ``update``; None if it is a repetition."""
        source = (update.stream, update.instance)
        position = self.positions.get(source)
        may_repeat = update.stream in REPEATABLE_STREAMS | MEMORY_ONLY_STREAMS
        if position is not None and update.token <= position and not may_repeat:
            self.repeated += 1
            return None
        self.advance(source, update.token)
        return update

    def receive_position(self, command: Position) -> MissedRange | None:
        """Move to the announced position, or return the missed range before it.

        The client follows a new stream writer from its first position, unless the writer appeared in an interruption.
        """
        source = (command.stream, command.instance)
        self._received_sources.add(source)
        # A POSITION in the middle of a token shows that the writer was interrupted. The token will be sent again, or
        # read from the database.
        self._unfinished_rows.pop(source, None)
        del self._unfinished_characters[source]
        position = self.start_of(source)
        if position is not None and command.previous is not None and command.previous > position:
            return MissedRange(command.stream, command.instance, position, max(command.previous, command.token))
        self.advance(source, command.token)
        return None

    def start_of(self, source: Source) -> int | None:
        """Return the last received token of ``source``; None if the source is followed from now on.

        A writer that appeared during an interruption wrote nothing before the last received token of its stream.
        """
        return self.positions.get(source, self._positions_before_interruption.get(source[0]))

    def mark_caught_up(self) -> None:
        """Record that all rows missed in an interruption were read.

        Writers that appear later are followed from their first command.
        """
        self._positions_before_interruption.clear()
        self.is_connected = True

    def advance(self, source: Source, token: int) -> None:
        """Set the position to ``token``: all lower tokens were received or recorded as missed."""
        may_restart = source[0] in MEMORY_ONLY_STREAMS
        self.positions[source] = token if may_restart else max(self.positions.get(source, token), token)

    def rewind(self, source: Source, token: int) -> Gap:
        """Set the position back to ``token``, and return the tokens that the database allocates again."""
        position, self.positions[source] = self.positions[source], token
        return Gap(*source, token, position, 0, WENT_BACK)

    def mark_disconnected(self) -> None:
        """Record an interruption, and discard rows of unfinished tokens. These rows are sent again."""
        self.is_connected = False
        self._interrupt()
        self._unfinished_rows.clear()
        self._unfinished_characters.clear()

    def _interrupt(self) -> None:
        self._received_sources.clear()
        self._interrupted_in_memory = {source for source in self.positions if source[0] in MEMORY_ONLY_STREAMS}
        self._positions_before_interruption = {
            stream: min(self._positions_before_interruption.get(stream, position), position)
            for stream, position in lowest_positions(self.positions).items()
            if stream not in MEMORY_ONLY_STREAMS
        }
