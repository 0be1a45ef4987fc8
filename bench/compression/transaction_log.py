"""Read the transactions that wrote or locked rows from a PostgreSQL log."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

OPTIONS: Final = ("log_duration=on", "log_line_prefix=%n %p %x %d %i ", "log_checkpoints=off")
"""Settings of the server. They do not log statements, because that would cost more than the measured work."""

_LINE: Final = re.compile(r"(\d+\.\d+) (\d+) (\d+) (\S+) (\S+) LOG:  duration: (\d+\.\d+) ms")
_ENDS: Final = ("COMMIT", "ROLLBACK")


@dataclass(frozen=True)
class Transaction:
    """A transaction, from its first statement that writes or locks a row to its end, in seconds since 1970."""

    database: str
    start: float
    end: float


def transactions(log: Iterable[str]) -> Iterator[Transaction]:
    """Yield the transactions of the log that wrote or locked rows, in the order of their ends.

    Some clients send a whole transaction as one statement. The log then has no BEGIN, and one duration.
    """
    first_writes: dict[str, float | None] = {}
    for line in filter(None, map(_LINE.match, log)):
        at, process, transaction, database, command, seconds = line.groups()
        started = float(at) - float(seconds) / 1000
        if command == "BEGIN":
            first_writes[process] = None
        elif command in _ENDS:
            first = first_writes.pop(process, started)
            if first is not None:
                yield Transaction(database, first, float(at))
        elif transaction != "0" and first_writes.get(process, started) is None:
            first_writes[process] = started
