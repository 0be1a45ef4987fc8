"""Compute the last complete ID of a stream without positions: the ID up to which all allocating transactions ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID

SETTLE_SECONDS: Final = 5.0
"""Minimum age of a complete ID on a standby.

Synapse stores no positions of some streams. In these streams, the transaction that writes a row also allocates the
row's ID, and has a lock on the sequence until the transaction ends. A standby does not show that lock. On a standby, an
ID is complete after two waits. The first wait ends when the ID is this old. The second wait ends when all transactions
that were open at the end of the first wait have ended.
"""


@dataclass(frozen=True)
class Transactions:
    """The oldest open transaction ID, and the next transaction ID. A standby shows what it has replayed."""

    oldest: int
    next_id: int
    is_standby: bool


def read_transactions(connection: Connection) -> Transactions:
    """Return the transactions in the PostgreSQL snapshot of ``connection``."""
    # A snapshot's xmax is one past the last ended transaction, so open transactions may be beyond xmax. age() is the
    # distance to the next transaction ID, so the sum is that ID.
    row = connection.execute(
        "select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint + age(pg_snapshot_xmax(s)::xid),"
        " pg_is_in_recovery() from pg_current_snapshot() s"
    ).fetchone()
    assert row is not None
    return Transactions(int(row[0]), int(row[1]), bool(row[2]))


def read_sequence_holders(connection: Connection, sequences: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Return the transactions with a lock on each of ``sequences``.

    ``nextval`` takes that lock until its transaction ends, even if the transaction has no transaction ID.
    """
    holders: dict[str, set[str]] = {name: set() for name in sequences}
    for name, transaction in connection.execute(
        "select name, virtualtransaction from unnest(%s::text[]) name join pg_locks on relation = name::regclass"
        " and database = (select oid from pg_database where datname = current_database())"
        " where mode = 'RowExclusiveLock' and granted",
        [list(sequences)],
    ):
        holders[name].add(transaction)
    return {name: frozenset(transactions) for name, transactions in holders.items()}


@dataclass
class _WaitingId:
    """An allocated ID whose transaction may be open.

    ``holders``: transactions with a lock on the sequence, read after ``seen_at``; None before that. ``horizon``: on a
    standby, the next transaction ID at the time when the ID was old enough; None before that.
    """

    value: int
    seen_at: float
    holders: frozenset[str] | None = None
    horizon: int | None = None


class SettledIds:
    """Tracks the sequence of one stream."""

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._waiting: list[_WaitingId] = []
        self._settled = FIRST_ID

    @property
    def is_waiting(self) -> bool:
        """Whether some IDs may not be complete."""
        return bool(self._waiting)

    def advance(self, last_value: int, holders: frozenset[str] | None, transactions: Transactions) -> int:
        """Return the ID up to which every allocating transaction has ended.

        :param last_value: last value of the sequence, in the snapshot of ``transactions``.
        :param holders: transactions with a lock on the sequence, read before that snapshot; None if they were not read.
        """
        now = monotonic()
        for waiting in self._waiting:
            if transactions.is_standby:
                if waiting.horizon is None and now - waiting.seen_at >= self._settle_seconds:
                    waiting.horizon = transactions.next_id
                has_settled = waiting.horizon is not None and waiting.horizon <= transactions.oldest
            else:
                waiting.holders = holders if waiting.holders is None else waiting.holders
                has_settled = holders is not None and waiting.holders is not None and not waiting.holders & holders
            if not has_settled:
                break
            self._settled = waiting.value
        self._waiting = [waiting for waiting in self._waiting if waiting.value > self._settled]
        if last_value > max([self._settled, *(waiting.value for waiting in self._waiting[-1:])]):
            self._waiting.append(_WaitingId(last_value, now))
        return self._settled
