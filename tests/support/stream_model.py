"""A stream as Synapse's documentation defines it, in memory: the reference for what is read out of a database.

Writers reserve ids and complete them, in any order. An id's transaction ends with rows or without (it rolled back, or
had nothing to say); the writer then completes the id, and on success stores its position. A snapshot of the database
may fall between any two of these steps. Ids of a stream that counts downwards are mirrored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID


@dataclass(frozen=True)
class Rdata:
    """A writer's RDATA. ``rows`` share ``token``; none if the transaction wrote nothing."""

    writer: str
    token: int
    rows: int


@dataclass(frozen=True)
class Position:
    """A writer's POSITION for a reader."""

    writer: str
    token: int


@dataclass(frozen=True)
class Database:
    """What a snapshot shows: position by writer, writer by id that has rows, and the sequence."""

    positions: Mapping[str, int]
    writers: Mapping[int, str]
    last_value: int
    is_called: bool


@dataclass
class _Process:
    position: int
    seen: int
    awaiting: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)


class Stream:
    """Writers, the sequence they share, and what is stored of them."""

    def __init__(self, configured: Iterable[str], *, sign: int = 1, stored: Mapping[str, int] | None = None) -> None:
        """:param stored: positions that the database has from before, by writer."""
        self.configured = set(configured)
        self.sign = sign
        self._stored = {writer: sign * position for writer, position in (stored or {}).items()}
        self._last = max([FIRST_ID, *self._stored.values()])
        self._open: dict[int, str] = {}
        self._ended: dict[int, tuple[str, int]] = {}
        self._processes: dict[str, _Process] = {}
        for writer in self.configured:
            self.start(writer)

    @property
    def writers(self) -> set[str]:
        """All that may write: the configured ones, and others that are at work."""
        return self.configured | set(self._processes)

    @property
    def open(self) -> set[int]:
        """Reserved IDs with open transactions."""
        return {self.sign * one for one in self._open}

    def awaiting(self, writer: str) -> set[int]:
        """Ids that the writer has reserved and not completed."""
        return {self.sign * one for one in self._processes[writer].awaiting}

    def start(self, writer: str) -> None:
        """Start the writer, or start it again: what it had under way is rolled back.

        It takes its position from the database, and awaits nothing.
        """
        for one in [one for one, owner in self._open.items() if owner == writer]:
            self._ended[one] = (self._open.pop(one), 0)
        self._processes[writer] = _Process(self._last, self._last)

    def remove(self, writer: str) -> None:
        """Remove the writer. Its stored position stays until it is deleted."""
        self.start(writer)
        del self._processes[writer]
        self.configured.discard(writer)

    def forget(self, writer: str) -> None:
        """Clear away the stored position of a writer that was removed, as other writers do when they start."""
        if writer not in self.writers:
            self._stored.pop(writer, None)

    def reserve(self, writer: str) -> int:
        """The next id."""
        self._last += 1
        process = self._processes[writer]
        process.seen = self._last
        process.awaiting.add(self._last)
        self._open[self._last] = writer
        return self.sign * self._last

    def end(self, token: int, rows: int) -> None:
        """The transaction of an id ends: ``rows`` are there from now on, and never more or fewer."""
        one = self.sign * token
        self._ended[one] = (self._open.pop(one), rows)

    def complete(self, token: int, rows: int = 1, *, succeeded: bool = True) -> list[Rdata]:
        """Complete an ID, and end its transaction if necessary; return the writer's messages.

        :param succeeded: whether the writer goes on to store its position; it does not after an error.
        """
        one = self.sign * token
        if one in self._open:
            self.end(token, rows if succeeded else 0)
        writer, _ = self._ended[one]
        process = self._processes[writer]
        process.awaiting.remove(one)
        process.done.add(one)
        before, process.position = process.position, self._advanced(process)
        passed = sorted(one for one in process.done if one <= process.position)
        process.done.difference_update(passed)
        if succeeded:
            self._stored[writer] = max(process.position, self._stored.get(writer, process.position))
        assert all(one > before for one in passed)
        return [Rdata(writer, self.sign * one, self._ended[one][1]) for one in passed]

    def hear(self, writer: str, of: Rdata | Position) -> None:
        """The writer hears how far another one is: ids up to there were handed out."""
        process = self._processes[writer]
        process.seen = max(process.seen, self.sign * of.token)

    def replicate(self) -> list[Position]:
        """What the writers answer a reader that starts."""
        return [Position(writer, self.position(writer)) for writer in sorted(self._processes)]

    def position(self, writer: str) -> int:
        """Where the writer itself knows it is: no id of its own up to there awaits completion."""
        return self.sign * self._processes[writer].position

    def minimum(self, writer: str) -> int | None:
        """The least current id of a writer: its stored position, None before it stored one."""
        stored = self._stored.get(writer)
        return None if stored is None else self.sign * stored

    def maximum(self, writer: str) -> int:
        """The greatest current id of a writer."""
        return self.sign * max(self._processes[writer].position, self._linear_maximum())

    def linear_minimum(self) -> int | None:
        """The least current id of the whole stream; None while a writer has no stored position."""
        if any(writer not in self._stored for writer in self.writers):
            return None
        return self.sign * min((self._stored[writer] for writer in self.writers), default=FIRST_ID)

    def linear_maximum(self) -> int:
        """The greatest current id of the whole stream: one before the first id that is open."""
        return self.sign * self._linear_maximum()

    def database(self) -> Database:
        """What a snapshot shows now."""
        return Database(
            {writer: self.sign * position for writer, position in self._stored.items()},
            {self.sign * one: writer for one, (writer, rows) in self._ended.items() if rows},
            self._last,
            self._last > FIRST_ID,
        )

    def _linear_maximum(self) -> int:
        return min(self._open) - 1 if self._open else self._last

    @staticmethod
    def _advanced(process: _Process) -> int:
        if not process.awaiting:
            return process.seen
        first = min(process.awaiting)
        return max((one for one in process.done if one < first), default=process.position)


class Reader:
    """Follows a stream by what its writers say."""

    def __init__(self, writers: Iterable[str], answers: Iterable[Position], *, sign: int = 1) -> None:
        """:param writers: all of them: a reader that does not know one would run ahead of it."""
        self.sign = sign
        self.writers = frozenset(writers)
        self.positions: dict[str, int] = {}
        for answer in answers:
            self.receive(answer)

    def receive(self, message: Rdata | Position) -> None:
        """Advance to a writer's POSITION."""
        known = self.positions.get(message.writer, message.token)
        self.positions[message.writer] = self.sign * max(self.sign * known, self.sign * message.token)

    def linear(self) -> int | None:
        """The ID up to which it has received everything; None while a writer has not answered."""
        if not self.writers <= self.positions.keys():
            return None
        return self.sign * min(self.sign * self.positions[writer] for writer in self.writers)
