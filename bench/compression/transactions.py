"""Transactions that wrote or locked rows, by a PostgreSQL server's log."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

OPTIONS: Final = ("log_duration=on", "log_line_prefix=%n %p %x %d %i ", "log_checkpoints=off")
"""Settings of the server: no text of statements, which would cost more than what is measured."""

_LINE: Final = re.compile(r"(\d+\.\d+) (\d+) (\d+) (\S+) (\S+) LOG:  duration: (\d+\.\d+) ms")
_ENDS: Final = ("COMMIT", "ROLLBACK")


@dataclass(frozen=True)
class Transaction:
    """From its first statement that wrote or locked a row until its end was done, in seconds since 1970."""

    database: str
    began: float
    ended: float


def transactions(log: Iterable[str]) -> Iterator[Transaction]:
    """Those of the ``log`` that wrote or locked, in the order of their ends.

    Some clients send a whole transaction as one statement: there is no BEGIN then, and one duration for everything.
    """
    begun: dict[str, float | None] = {}
    for line in filter(None, map(_LINE.match, log)):
        at, process, transaction, database, command, took = line.groups()
        started = float(at) - float(took) / 1000
        if command == "BEGIN":
            begun[process] = None
        elif command in _ENDS:
            first = begun.pop(process, started)
            if first is not None:
                yield Transaction(database, first, float(at))
        elif transaction != "0" and begun.get(process, started) is None:
            begun[process] = started
