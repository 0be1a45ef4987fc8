"""Up to which ID a stream without positions is complete: every transaction that got an ID of it before has ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID

SETTLE_SECONDS: Final = 5.0
"""Synapse keeps no positions of some streams. Their ids are handed out in the transaction that writes the rows, which
holds a lock on the sequence until it ends. A standby does not see that lock: there, ids count as complete when they are
this old and every transaction that had a transaction ID by then has ended."""


@dataclass(frozen=True)
class Transactions:
    """The oldest transaction ID that is open, and the next that is not given out; on a standby, as replayed."""

    oldest: int
    following: int
    is_standby: bool


def read_transactions(connection: Connection) -> Transactions:
    """Those of the snapshot of ``connection``."""
    # A snapshot's xmax is one past the last that has ended: open ones may be beyond it. age counts from the next one.
    row = connection.execute(
        "select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint + age(pg_snapshot_xmax(s)::xid),"
        " pg_is_in_recovery() from pg_current_snapshot() s"
    ).fetchone()
    assert row is not None
    return Transactions(int(row[0]), int(row[1]), bool(row[2]))


def sequence_holders(connection: Connection, sequences: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Transactions that have a lock on each of ``sequences``.

    ``nextval`` takes that lock, and a transaction keeps it until it ends, with a transaction ID or without.
    """
    found: dict[str, set[str]] = {name: set() for name in sequences}
    for name, transaction in connection.execute(
        "select name, virtualtransaction from unnest(%s::text[]) name join pg_locks on relation = name::regclass"
        " and database = (select oid from pg_database where datname = current_database())"
        " where mode = 'RowExclusiveLock' and granted",
        [list(sequences)],
    ):
        found[name].add(transaction)
    return {name: frozenset(transactions) for name, transactions in found.items()}


@dataclass
class _Waiting:
    """An ID that a sequence handed out.

    ``holders``: transactions with a lock on the sequence, as a look after ``seen_at`` found them. ``horizon``: on a
    standby, the next transaction ID once the ID was old enough. None: not looked at yet.
    """

    value: int
    seen_at: float
    holders: frozenset[str] | None = None
    horizon: int | None = None


class SettledIds:
    """Follows the sequence of one stream."""

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._waiting: list[_Waiting] = []
        self._settled = FIRST_ID

    @property
    def is_waiting(self) -> bool:
        """Whether there are IDs that may not be complete."""
        return bool(self._waiting)

    def advance(self, last_value: int, holders: frozenset[str] | None, transactions: Transactions) -> int:
        """The ID up to which every transaction that got one has ended.

        :param last_value: the last that the sequence handed out, read in the snapshot of ``transactions``.
        :param holders: transactions with a lock on the sequence, read before that snapshot was taken; None if they were
            not read.
        """
        now = monotonic()
        for one in self._waiting:
            if transactions.is_standby:
                if one.horizon is None and now - one.seen_at >= self._settle_seconds:
                    one.horizon = transactions.following
                has_settled = one.horizon is not None and one.horizon <= transactions.oldest
            else:
                one.holders = holders if one.holders is None else one.holders
                has_settled = holders is not None and one.holders is not None and not one.holders & holders
            if not has_settled:
                break
            self._settled = one.value
        self._waiting = [one for one in self._waiting if one.value > self._settled]
        if last_value > max([self._settled, *(one.value for one in self._waiting[-1:])]):
            self._waiting.append(_Waiting(last_value, now))
        return self._settled
