"""What the commands of a connection say about its streams: whole tokens, and where something is missing.

A position moves only with the last row of a token, so that whoever resumes from it gets every row once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.replication.protocol.commands import Position, Rdata

REPEATING: Final = frozenset({"caches"})
"""Streams whose tokens Synapse may send again, or out of order: they are requests to forget, which do no harm twice."""

MEMORY_ONLY: Final = frozenset({"typing", "presence_federation", "federation"})
"""Streams that Synapse keeps in memory: no table has their rows, and their tokens begin again when it restarts."""

MOST_HELD: Final = 64 << 20
"""Characters of unfinished tokens' rows that are held before their sender counts as broken: half a million rows."""

WENT_BACK: Final = (
    "the database went back, by a restore or a failover, so these tokens are given out again; what was written before "
    "that was noticed was not heard"
)

Source = tuple[str, str | None]
"""A stream and the instance that writes it; None where instances are not told apart."""


@dataclass(frozen=True, slots=True)
class Update:
    """All rows of one token. ``is_read``: they were read from the database instead of heard."""

    stream: str
    instance: str | None
    token: int
    rows: tuple[Any, ...]
    is_read: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Missed:
    """Tokens after ``after`` and up to ``upto`` of which nothing was heard; some may never have had rows."""

    stream: str
    instance: str | None
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Tokens after ``after`` and up to ``upto`` that were not heard: ``found`` of them were read from the database
    instead, and ``cause`` says why there were not more."""

    stream: str
    instance: str | None
    after: int
    upto: int
    found: int
    cause: str


def lowest(positions: Mapping[Source, int]) -> dict[str, int]:
    """Tokens up to which each stream was heard, whoever writes it."""
    found: dict[str, int] = {}
    for (stream, _), position in positions.items():
        found[stream] = min(found.get(stream, position), position)
    return found


class EndlessTokenError(LakehouseError):
    """A token that gathers rows and never ends."""


class Progress:
    """Where each stream stands, by source, and what half of a token has arrived.

    ``repeated`` counts tokens that came again and were dropped. ``is_connected``: nothing is missed at present.
    """

    def __init__(self, positions: Mapping[Source, int] | None = None) -> None:
        self.positions: dict[Source, int] = dict(positions or {})
        self.repeated = 0
        self.is_connected = False
        self._rows: dict[Source, list[Any]] = {}
        self._held: Counter[Source] = Counter()
        self._interrupted: set[Source] = set()
        self._heard: set[Source] = set()
        self._left: dict[str, int] = {}
        self._interrupt()

    def rdata(self, command: Rdata) -> Update | None:
        """The token that this row completes; None while more rows are to come, or when all of it was seen before.

        :raises EndlessTokenError: as :meth:`gather`.
        """
        update = self.gather(command)
        return self.update(update) if update else None

    def gather(self, command: Rdata) -> Update | None:
        """The token that this row completes, with no position moved; None while more rows are to come.

        :raises EndlessTokenError: when more than ``MOST_HELD`` waits for the last row of its token.
        """
        source = (command.stream, command.instance)
        if command.token is None:
            self._rows.setdefault(source, []).append(command.row)
            self._held[source] += len(repr(command.row))
            if self._held.total() > MOST_HELD:
                count = len(self._rows[source])
                raise EndlessTokenError(
                    f"{command.stream}: {count} rows, too many to hold, and not the last of their token"
                )
            return None
        rows = self._rows.pop(source, [])
        del self._held[source]
        return Update(command.stream, command.instance, command.token, (*rows, command.row))

    def is_first(self, command: Rdata) -> bool:
        """Whether it ends the first token of a source that is heard after an interruption, and no position came before.

        To be asked once a row: what follows a token that was heard is heard.
        """
        source = (command.stream, command.instance)
        if command.token is None or source in self._heard:
            return False
        self._heard.add(source)
        return True

    def unheard(self, command: Rdata) -> tuple[str, str | None, int, int] | None:
        """Source, last token before and first after an interruption, where the stream is one that is kept in memory.

        What such a stream said meanwhile is known to nobody; all others are asked for again, or read.
        """
        source = (command.stream, command.instance)
        position = self.positions.get(source)
        if source not in self._interrupted or command.token is None or position is None:
            return None
        self._interrupted.discard(source)
        return None if command.token == position + 1 else (*source, position, command.token - 1)

    def update(self, update: Update) -> Update | None:
        """``update``, with the position moved; None when it was seen before."""
        source = (update.stream, update.instance)
        position = self.positions.get(source)
        if position is not None and update.token <= position and update.stream not in REPEATING | MEMORY_ONLY:
            self.repeated += 1
            return None
        self.reach(source, update.token)
        return update

    def position(self, command: Position) -> Missed | None:
        """What is missing before the announced position. Without anything missing, the position moves there.

        The first position of a source is where following it begins, unless it came up unheard.
        """
        source = (command.stream, command.instance)
        self._heard.add(source)
        # Rows of a token whose writer was interrupted: the token comes again, or is read.
        self._rows.pop(source, None)
        del self._held[source]
        position = self.begin(source)
        if position is not None and command.previous is not None and command.previous > position:
            return Missed(command.stream, command.instance, position, max(command.previous, command.token))
        self.reach(source, command.token)
        return None

    def begin(self, source: Source) -> int | None:
        """The token after which nothing of ``source`` was heard; None where it is to be followed from now on.

        A writer that came up during an interruption wrote nothing before its stream was last heard.
        """
        return self.positions.get(source, self._left.get(source[0]))

    def caught_up(self) -> None:
        """All that was written during an interruption was read: writers that come up from now on are heard."""
        self._left.clear()
        self.is_connected = True

    def reach(self, source: Source, token: int) -> None:
        """Nothing more is to come at or below ``token``."""
        begins_again = source[0] in MEMORY_ONLY
        self.positions[source] = token if begins_again else max(self.positions.get(source, token), token)

    def went_back(self, source: Source, token: int) -> Gap:
        """Follow ``source`` from ``token`` on, as the database went back to it: what is given out again."""
        position, self.positions[source] = self.positions[source], token
        return Gap(*source, token, position, 0, WENT_BACK)

    def disconnected(self) -> None:
        """Rows of tokens that were not complete are given up: they are sent again."""
        self.is_connected = False
        self._interrupt()
        self._rows.clear()
        self._held.clear()

    def _interrupt(self) -> None:
        self._heard.clear()
        self._interrupted = {source for source in self.positions if source[0] in MEMORY_ONLY}
        self._left = {
            stream: min(self._left.get(stream, position), position)
            for stream, position in lowest(self.positions).items()
            if stream not in MEMORY_ONLY
        }
