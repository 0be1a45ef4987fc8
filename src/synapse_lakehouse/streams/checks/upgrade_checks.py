"""Check whether Synapse can start on its databases, as it must after an upgrade, and record the result."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from pyiceberg.catalog import Catalog as IcebergCatalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Database
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.collation import find_collation_faults
from synapse_lakehouse.postgres.connection import Connection, connect, split_by_database
from synapse_lakehouse.postgres.live_stream_positions import set_short_timeout
from synapse_lakehouse.streams.checks.group_sequence import find_group_sequence_fault
from synapse_lakehouse.streams.checks.sequences import SequenceFault
from synapse_lakehouse.streams.checks.synapse_startup import find_startup_faults, read_progress

CHECKS_TABLE: Final = "audit.upgrade_checks"


_Check = tuple[int, list[tuple[str, str]]]
"""Number of examined objects, and their faults: pairs of fault and advice."""


def record_upgrade_checks(settings: Settings, declared: Catalogue, catalog: IcebergCatalog, run: Run) -> None:
    """Append a row for each fault of the sequences and of the collation, in all databases of Synapse.

    For the sequences, and for the collation, append one row without a fault if none was found.

    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy.
    """
    checked_at = datetime.now(UTC)
    checked, faults = Counter[str](), dict[tuple[str, str], str]()
    for part in split_by_database(settings, declared):
        with connect(settings, part.databases[0]) as connection:
            set_short_timeout(connection)
            checks = {"sequences": _check_sequences(connection, part), "collation": _check_collation(connection)}
        for subject, (count, found) in checks.items():
            checked[subject] += count
            faults |= {(subject, fault): advice for fault, advice in found}
    if settings.synapse_state_dsn:
        faults |= {("sequences", fault.message): _advise_repair(fault) for fault in find_database_faults(settings)}
    faulty = {subject for subject, _ in faults}
    rows: list[dict[str, Any]] = [
        {"subject": subject, "fault": fault, "advice": advice} for (subject, fault), advice in faults.items()
    ]
    rows += [{"subject": subject, "checked": count} for subject, count in checked.items() if subject not in faulty]
    store.append_audit_rows(catalog, CHECKS_TABLE, [row | {"checked_at": checked_at} for row in rows], run)


def _check_sequences(connection: Connection, declared: Catalogue) -> _Check:
    present = read_source_catalogue(declared, connection)
    progress = read_progress(connection, present)
    faults = find_startup_faults(present, progress)
    return len(progress), [(fault.message, _advise_repair(fault)) for _, fault in faults]


def find_database_faults(settings: Settings) -> Iterator[SequenceFault]:
    """Yield the fault of the sequence of state groups if the state database is behind the main database.

    :raises SourceError: when no connection to one of the databases can be made.
    :raises ReadError: when the source is too busy.
    """
    with connect(settings) as main, connect(settings, Database.STATE) as state:
        set_short_timeout(main)
        # A standby may be behind main, so its sequence would prove nothing.
        is_primary = state.execute("select not pg_is_in_recovery()").fetchone() == (True,)
        if is_primary and (fault := find_group_sequence_fault(main, state)):
            yield fault


def _advise_repair(fault: SequenceFault) -> str:
    return f"Stop Synapse and run: {fault.repair}"


def _check_collation(connection: Connection) -> _Check:
    return 1, [(fault.message, fault.advice) for fault in find_collation_faults(connection)]
