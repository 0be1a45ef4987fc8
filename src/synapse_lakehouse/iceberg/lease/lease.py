"""The lake lease: whoever moves a branched table's main holds it, from the making of its branch to its release.

The lease is a log, ``audit.leases``. To take or renew it is to append a row on condition that the log's head is still
the one that was read, so of two contenders exactly one succeeds, on any Iceberg catalog. The row is repeated in the
snapshot's summary, so that reading the lease opens no data file.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import LessThan
from pyiceberg.table import Table

from synapse_lakehouse.audit import store
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.lease.current_holder import NOBODY, LeaseHolder, parse_last_lease
from synapse_lakehouse.iceberg.write.append import append_rows
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)

LEASES_TABLE = "audit.leases"
_POLL_SECONDS = 2.0


class LeaseError(LakehouseError):
    """The lease is held by somebody else, or was lost; the message says by whom and until when."""


@dataclass(frozen=True)
class Lease:
    """The lease as ``holder`` (Airflow's run id, or another name that no two movers share) wants it.

    ``seconds``: how long it is good for without renewal. Clocks of the machines must agree to well within it.
    """

    catalog: Catalog
    holder: str
    branch: str
    seconds: int

    def acquire(self, wait_seconds: float = 0) -> tuple[str, ...]:
        """Take the lease, waiting up to ``wait_seconds`` for a live holder; again is the same as once.

        :returns: branches of holders that crashed or left their work undone, the latest last; ours may be among them.
            The caller takes them over or drops them, and then calls :meth:`settle`; if it crashes before that, whoever
            comes next gets them too.
        :raises LeaseError: when somebody else still holds it at the end of the wait.
        """
        deadline = time.monotonic() + wait_seconds
        told = False
        while True:
            table = self.catalog.load_table(LEASES_TABLE)
            held = _read(table)
            if held.holder == self.holder or not held.is_live(_now()):
                left = (*held.crashed, *([held.branch] if held.holder not in {"", self.holder} else []))
                crashed = tuple(one for one in dict.fromkeys(left) if one)
                if self._write(table, "renew" if held.holder == self.holder else "acquire", crashed):
                    return crashed
                continue
            if time.monotonic() >= deadline:
                raise LeaseError(
                    f"Run {held.holder} holds the lake lease until {held.until:%Y-%m-%d %H:%M:%S}Z (it renews it while "
                    "it works), so this run may not move the tables now. Wait for it to end, or if it is dead, for the "
                    "lease to expire; then run again. Nothing was changed."
                )
            if not told:
                log.warning("waiting for run %s, which holds the lake lease", held.holder)
                told = True
            time.sleep(_POLL_SECONDS)

    def renew(self) -> None:
        """Extend the lease.

        :raises LeaseError: when it was taken over: this run was taken for dead, and its branch is gone.
        """
        self._extend(settled=False)

    def settle(self) -> None:
        """Say that the branches that :meth:`acquire` returned are disposed of.

        :raises LeaseError: as :meth:`renew`.
        """
        self._extend(settled=True)

    def release(self, *, is_undone: bool = False) -> None:
        """Give the lease back; without effect if it is not ours (any more).

        :param is_undone: whoever takes it next shall get the branch as if its holder had crashed.
        """
        # A lake in which no run was ever opened has no log either.
        while (table := load_table_or_none(self.catalog, LEASES_TABLE)) is not None:
            held = _read(table)
            left = dict.fromkeys((*held.crashed, self.branch)) if is_undone else held.crashed
            if held.holder != self.holder or self._write(table, "release", tuple(left)):
                return

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Hold on to a lease that was acquired earlier, renewing it in the background.

        :raises LeaseError: at the start, or at the end if it was lost meanwhile.
        """
        self.renew()
        done, lost = threading.Event(), list[Exception]()

        def keep() -> None:
            while not done.wait(self.seconds / 3):
                try:
                    self.renew()
                except LeaseError as error:
                    lost.append(error)
                    return
                except Exception:
                    log.warning("the lake lease could not be renewed, trying again", exc_info=True)

        keeper = threading.Thread(target=keep, name="lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()
        if lost:
            raise lost[0]

    def _extend(self, *, settled: bool) -> None:
        while True:
            table = self.catalog.load_table(LEASES_TABLE)
            held = _read(table)
            if not held.holder:
                raise LeaseError(
                    f"Run {self.holder} does not hold the lake lease any more: it was closed, or taken for dead, so "
                    "none of its tasks works alone. This one changed nothing. Clear the whole run, from open_run on."
                )
            if held.holder != self.holder:
                raise LeaseError(
                    f"The lake lease of {self.holder} was lost to {held.holder}: it had not been renewed for "
                    f"{self.seconds} s, so its branch was dropped. Nothing was published; run it again."
                )
            if self._write(table, "renew", () if settled else held.crashed):
                return

    def _write(self, table: Table, action: str, crashed: tuple[str, ...]) -> bool:
        now = _now()
        until = now if action == "release" else now + timedelta(seconds=self.seconds)
        row = {"holder": self.holder, "branch": self.branch, "action": action, "until": until, "at": now}
        said = LeaseHolder("" if action == "release" else self.holder, self.branch, until, crashed)
        try:
            append_rows(table, pa.Table.from_pylist([row], schema=store.AUDIT_SCHEMAS[LEASES_TABLE]), said.summary())
        except CommitFailedException:
            return False
        return True


def get_current_holder(catalog: Catalog) -> LeaseHolder | None:
    """Who holds the lease at present (perhaps expired), or None."""
    held = _read(catalog.load_table(LEASES_TABLE))
    return held if held.holder else None


def trim_lease_log(catalog: Catalog, before: datetime) -> None:
    """Drop rows of the log that were written before ``before``; whoever holds the lease goes on holding it."""
    old = LessThan(term="at", value=before.isoformat())
    while True:
        table = catalog.load_table(LEASES_TABLE)
        held = _read(table)
        if not list(table.scan(row_filter=old).plan_files()):
            return
        with suppress(CommitFailedException):
            table.delete(old, snapshot_properties=held.summary())


def _read(table: Table) -> LeaseHolder:
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return NOBODY
    return parse_last_lease(snapshot.summary.additional_properties)


def _now() -> datetime:
    return datetime.now(UTC)
