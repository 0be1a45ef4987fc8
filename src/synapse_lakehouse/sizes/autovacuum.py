"""Find relations that autovacuum does not vacuum although they are due. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from synapse_lakehouse.sizes.summary import SizeRow, SizeSummary

_MIN_WAIT: Final = timedelta(hours=1)
"""Minimum time for which a relation must be due. By default, autovacuum visits each database every minute, but it needs
a while for a large table."""
_MIN_DEAD_ROWS: Final = 10_000
"""Minimum number of dead rows that count after a VACUUM. A small table may have many new dead rows between two visits
of autovacuum."""


@dataclass(frozen=True)
class OverdueVacuum:
    """A relation that autovacuum should have vacuumed.

    ``for_dead_rows``, ``for_transaction_ids``: the reasons. ``since``: an earlier row with the same reason.
    """

    latest: SizeRow
    since: SizeRow
    for_dead_rows: bool
    for_transaction_ids: bool


def find_overdue_vacuum(summary: SizeSummary) -> OverdueVacuum | None:
    """Return why a relation is due now and was due at the last measurement at least an hour before; else None.

    A relation is due if it has more dead rows than ``vacuum_threshold``, or if its transaction IDs are older than
    ``freeze_max_age`` (https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM). If a VACUUM ran
    between the two measurements, dead rows count only if both measurements show more than twice the threshold. Then
    VACUUM could not remove the rows, because an old transaction or a replication slot still needs them.
    """
    latest = summary.latest
    earlier = [row for row in summary.history if latest.measured_at - row.measured_at >= _MIN_WAIT]
    if not earlier:
        return None
    last = earlier[-1]
    is_vacuumed = latest.last_vacuum is not None and latest.last_vacuum > last.measured_at
    for_dead_rows = all(_has_excess_dead_rows(row, twice=is_vacuumed) for row in (last, latest))
    for_transaction_ids = _has_old_transaction_ids(last) and _has_old_transaction_ids(latest)
    if not (for_dead_rows or for_transaction_ids):
        return None
    return OverdueVacuum(latest, last, for_dead_rows, for_transaction_ids)


def _has_excess_dead_rows(row: SizeRow, *, twice: bool) -> bool:
    if row.dead_rows is None or row.vacuum_threshold is None:
        return False
    return row.dead_rows > (max(2 * row.vacuum_threshold, _MIN_DEAD_ROWS) if twice else row.vacuum_threshold)


def _has_old_transaction_ids(row: SizeRow) -> bool:
    if row.schema_name is None or row.transaction_id_age is None or row.freeze_max_age is None:
        return False
    return row.transaction_id_age > row.freeze_max_age
