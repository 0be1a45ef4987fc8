"""Find relations that autovacuum does not vacuum although they are due. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from synapse_lakehouse.sizes.summary import SizeRow, SizeSummary

_MIN_WAIT: Final = timedelta(hours=1)
"""Autovacuum visits each database every minute by default, but needs a while for a large table."""
_MIN_DEAD_ROWS: Final = 10_000
"""Small tables may have many new dead rows between two visits."""


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
    """Return the reasons why a relation was due an hour ago or longer, and is due now; None if it was not or is not.

    A relation is due if it has more dead rows than ``vacuum_threshold``, or if its transaction IDs are older than
    ``freeze_max_age`` (https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM). If a VACUUM ran in
    between, dead rows count only if both times there were more than twice the threshold: then VACUUM could not remove
    them, because an old transaction or a replication slot still needs them.
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
