"""A model of a stream, as Synapse's documentation defines it. Values from a database are compared with it.

Writers reserve IDs and complete them in any order. The transaction of an ID ends with rows or without, because it is
rolled back or writes nothing. Then the writer completes the ID, and after a success stores its position. A PostgreSQL
snapshot can be taken between any two of these steps. Streams that count downwards are mirrored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID


@dataclass(frozen=True)
class Rdata:
    """A writer's RDATA. ``rows``: number of rows with ``token``, zero if the transaction wrote nothing."""

    writer: str
    token: int
    rows: int


@dataclass(frozen=True)
class Position:
    """A writer's POSITION."""

    writer: str
    token: int


@dataclass(frozen=True)
class Database:
    """Content of a PostgreSQL snapshot. ``positions`` by writer; ``writers`` by ID that has rows; and the sequence."""

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
    """Writers, their common sequence, and their stored positions."""

    def __init__(self, configured: Iterable[str], *, sign: int = 1, stored: Mapping[str, int] | None = None) -> None:
        """:param stored: positions that the database already has, by writer."""
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
        """Configured writers and running writers."""
        return self.configured | set(self._processes)

    @property
    def open(self) -> set[int]:
        """Reserved IDs with open transactions."""
        return {self.sign * number for number in self._open}

    def awaiting(self, writer: str) -> set[int]:
        """Return the IDs that the writer has reserved and not completed."""
        return {self.sign * number for number in self._processes[writer].awaiting}

    def start(self, writer: str) -> None:
        """Start or restart the writer.

        Its open transactions are rolled back. It reads its position from the database, and has no reserved IDs.
        """
        for number in [number for number, owner in self._open.items() if owner == writer]:
            self._ended[number] = (self._open.pop(number), 0)
        self._processes[writer] = _Process(self._last, self._last)

    def remove(self, writer: str) -> None:
        """Remove the writer. Its stored position stays until it is deleted."""
        self.start(writer)
        del self._processes[writer]
        self.configured.discard(writer)

    def forget(self, writer: str) -> None:
        """Delete the stored position of a removed writer, as other writers do when they start."""
        if writer not in self.writers:
            self._stored.pop(writer, None)

    def reserve(self, writer: str) -> int:
        """Reserve and return the next ID."""
        self._last += 1
        process = self._processes[writer]
        process.seen = self._last
        process.awaiting.add(self._last)
        self._open[self._last] = writer
        return self.sign * self._last

    def end(self, token: int, rows: int) -> None:
        """End the transaction of an ID. From then on, the ID has ``rows`` rows."""
        number = self.sign * token
        self._ended[number] = (self._open.pop(number), rows)

    def complete(self, token: int, rows: int = 1, *, succeeded: bool = True) -> list[Rdata]:
        """Complete an ID, and end its transaction if it is open; return the writer's messages.

        :param succeeded: whether the writer stores its position. It does not after an error.
        """
        number = self.sign * token
        if number in self._open:
            self.end(token, rows if succeeded else 0)
        writer, _ = self._ended[number]
        process = self._processes[writer]
        process.awaiting.remove(number)
        process.done.add(number)
        before, process.position = process.position, self._next_position(process)
        passed = sorted(number for number in process.done if number <= process.position)
        process.done.difference_update(passed)
        if succeeded:
            self._stored[writer] = max(process.position, self._stored.get(writer, process.position))
        assert all(number > before for number in passed)
        return [Rdata(writer, self.sign * number, self._ended[number][1]) for number in passed]

    def receive_position(self, writer: str, of: Rdata | Position) -> None:
        """Process another writer's position: all IDs up to it are reserved."""
        process = self._processes[writer]
        process.seen = max(process.seen, self.sign * of.token)

    def replicate(self) -> list[Position]:
        """Return the positions that the writers send to a new reader."""
        return [Position(writer, self.position(writer)) for writer in sorted(self._processes)]

    def position(self, writer: str) -> int:
        """Return the position in the writer's memory. It has completed all of its IDs up to there."""
        return self.sign * self._processes[writer].position

    def minimum(self, writer: str) -> int | None:
        """Return a writer's stored position, a lower bound; None if it has stored none."""
        stored = self._stored.get(writer)
        return None if stored is None else self.sign * stored

    def maximum(self, writer: str) -> int:
        """Return an upper bound of a writer's position: IDs above it may be open."""
        return self.sign * max(self._processes[writer].position, self._linear_maximum())

    def linear_minimum(self) -> int | None:
        """Return the minimum of all stored positions; None while a writer has no stored position."""
        if any(writer not in self._stored for writer in self.writers):
            return None
        return self.sign * min((self._stored[writer] for writer in self.writers), default=FIRST_ID)

    def linear_maximum(self) -> int:
        """Return the ID before the first open ID of the whole stream."""
        return self.sign * self._linear_maximum()

    def database(self) -> Database:
        """Return a PostgreSQL snapshot."""
        return Database(
            {writer: self.sign * position for writer, position in self._stored.items()},
            {self.sign * number: writer for number, (writer, rows) in self._ended.items() if rows},
            self._last,
            self._last > FIRST_ID,
        )

    def _linear_maximum(self) -> int:
        return min(self._open) - 1 if self._open else self._last

    @staticmethod
    def _next_position(process: _Process) -> int:
        if not process.awaiting:
            return process.seen
        first = min(process.awaiting)
        return max((number for number in process.done if number < first), default=process.position)


class Reader:
    """A reader that receives the messages of a stream's writers."""

    def __init__(self, writers: Iterable[str], positions: Iterable[Position], *, sign: int = 1) -> None:
        """:param writers: all writers. If one is missing, the reader passes its open IDs."""
        self.sign = sign
        self.writers = frozenset(writers)
        self.positions: dict[str, int] = {}
        for position in positions:
            self.receive(position)

    def receive(self, message: Rdata | Position) -> None:
        """Advance to the position of a writer's message."""
        position = self.positions.get(message.writer, message.token)
        self.positions[message.writer] = self.sign * max(self.sign * position, self.sign * message.token)

    def find_complete_id(self) -> int | None:
        """Return the ID up to which it has received all rows; None while a writer's position is unknown."""
        if not self.writers <= self.positions.keys():
            return None
        return self.sign * min(self.sign * self.positions[writer] for writer in self.writers)
