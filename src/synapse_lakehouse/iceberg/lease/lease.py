"""The lake lease, which a run needs while it has a branch: only one run at a time may move ``main`` branches.

The lease is a log, ``audit.leases``. To take or renew the lease, a run appends a row. The append succeeds only if no
other row was appended since the run read the log. So if two runs try at once, exactly one succeeds, on any Iceberg
catalog. The summary of the Iceberg snapshot repeats the row, so that reading the lease opens no data file.
"""

import threading
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
from synapse_lakehouse.iceberg.lease.lease_holder import NOBODY, LeaseHolder, parse_last_lease
from synapse_lakehouse.iceberg.write.append import append_rows
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)

LEASES_TABLE = "audit.leases"


class LeaseError(LakehouseError):
    """Another run holds the lease, or this run lost it. The message names the holder and the expiry."""


@dataclass(frozen=True)
class Lease:
    """The lease for ``holder``: Airflow's run ID, or another unique name.

    ``seconds``: validity without renewal. The clocks of the machines must differ by much less.
    """

    catalog: Catalog
    holder: str
    branch: str
    seconds: int

    def acquire(self) -> tuple[str, ...]:
        """Take the lease. A run that has the lease renews it.

        :returns: branches of runs that crashed or did not finish, the branch of the latest holder last. This run's own
            branch may be included. The caller resumes or drops the branches and then calls :meth:`settle`. If the
            caller crashes before this call, the next holder gets the same branches.
        :raises LeaseError: when another run has the lease.
        """
        while True:
            table = self.catalog.load_table(LEASES_TABLE)
            last = _read(table)
            if last.holder != self.holder and last.is_live(_now()):
                raise LeaseError(
                    f"Run {last.holder} holds the lake lease until {last.until:%Y-%m-%d %H:%M:%S}Z, and may renew the "
                    "lease. Meanwhile this run cannot change the tables. This run changed nothing. Wait until the "
                    "other run ends or, if it crashed, until the lease expires. Then run again."
                )
            crashed_branches = (*last.crashed, *([last.branch] if last.holder not in {"", self.holder} else []))
            crashed = tuple(branch for branch in dict.fromkeys(crashed_branches) if branch)
            if self._write(table, "renew" if last.holder == self.holder else "acquire", crashed):
                return crashed

    def renew(self) -> None:
        """Extend the lease.

        :raises LeaseError: when the lease was released, or another run took the expired lease and dropped the branch of
            this run.
        """
        self._extend(settled=False)

    def settle(self) -> None:
        """Record that the branches that :meth:`acquire` returned were resumed or dropped.

        :raises LeaseError: as :meth:`renew`.
        """
        self._extend(settled=True)

    def release(self, *, is_undone: bool = False) -> None:
        """Release the lease, if this run has it.

        :param is_undone: whether the next holder shall get the branch, as if this run had crashed.
        """
        # A lake without runs has no lease log.
        while (table := load_table_or_none(self.catalog, LEASES_TABLE)) is not None:
            last = _read(table)
            crashed = dict.fromkeys((*last.crashed, self.branch)) if is_undone else last.crashed
            if last.holder != self.holder or self._write(table, "release", tuple(crashed)):
                return

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Renew an acquired lease in the background until the context ends.

        :raises LeaseError: at the start or at the end, if another run took the lease.
        """
        self.renew()
        stopped, failures = threading.Event(), list[Exception]()

        def renew_periodically() -> None:
            while not stopped.wait(self.seconds / 3):
                try:
                    self.renew()
                except LeaseError as error:
                    failures.append(error)
                    return
                except Exception:
                    log.warning("the lake lease could not be renewed, trying again", exc_info=True)

        thread = threading.Thread(target=renew_periodically, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
        if failures:
            raise failures[0]

    def _extend(self, *, settled: bool) -> None:
        while True:
            table = self.catalog.load_table(LEASES_TABLE)
            last = _read(table)
            if not last.holder:
                raise LeaseError(
                    f"Run {self.holder} no longer holds the lake lease, because the run was closed or its lease "
                    "expired. This task changed nothing. Clear all tasks of the run, from open_run on."
                )
            if last.holder != self.holder:
                raise LeaseError(
                    f"Run {self.holder} did not renew its lake lease for {self.seconds} s, so {last.holder} took the "
                    "lease and dropped the branch. Nothing was published. Start the run again."
                )
            if self._write(table, "renew", () if settled else last.crashed):
                return

    def _write(self, table: Table, action: str, crashed: tuple[str, ...]) -> bool:
        now = _now()
        until = now if action == "release" else now + timedelta(seconds=self.seconds)
        row = {"holder": self.holder, "branch": self.branch, "action": action, "until": until, "at": now}
        lease = LeaseHolder("" if action == "release" else self.holder, self.branch, until, crashed)
        try:
            append_rows(table, pa.Table.from_pylist([row], schema=store.AUDIT_SCHEMAS[LEASES_TABLE]), lease.summary())
        except CommitFailedException:
            return False
        return True


def trim_lease_log(catalog: Catalog, before: datetime) -> None:
    """Delete rows of the log that are older than ``before``, but not the present lease."""
    old = LessThan(term="at", value=before.isoformat())
    while True:
        table = catalog.load_table(LEASES_TABLE)
        last = _read(table)
        if not list(table.scan(row_filter=old).plan_files()):
            return
        with suppress(CommitFailedException):
            table.delete(old, snapshot_properties=last.summary())


def _read(table: Table) -> LeaseHolder:
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return NOBODY
    return parse_last_lease(snapshot.summary.additional_properties)


def _now() -> datetime:
    return datetime.now(UTC)
