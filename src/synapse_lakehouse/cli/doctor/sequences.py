"""Check Synapse's sequences: they match positions and rows, and did not regress since the latest release."""

from collections.abc import Mapping
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.cli.streams import positions
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.streams.checks import synapse_startup
from synapse_lakehouse.streams.checks.sequences import SequenceFault, StreamProgress, check_regression

_SUBJECT: Final = "sequences"
_SNAPSHOTS: Final = "audit.snapshots"
_ADVICE: Final = "Stop all processes of Synapse, review this SQL and run it:"


def examine(declared: Catalogue, progress: Mapping[str, StreamProgress]) -> Findings:
    """Repeat the checks of sequences that Synapse runs when it starts."""
    faults = [fault for _, fault in synapse_startup.find_startup_faults(declared, progress)]
    yield from map(report_fault, faults)
    if progress and not faults:
        message = f"{len(progress)} sequences match their positions and rows, so Synapse can start"
        yield DoctorFinding(FindingLevel.OK, _SUBJECT, message)


def compare_with_release(
    connection: DuckDBPyConnection, settings: Settings, declared: Catalogue, progress: Mapping[str, StreamProgress]
) -> Findings:
    """Check that no position is behind its value in the latest release."""
    releases = duckdb_reader.list_releases(connection, settings)
    if not releases:
        return
    may_be_ahead = _may_be_ahead(connection, settings, releases[0].run_id)
    for position in positions.read_positions(connection, settings, releases[0]):
        stream = next((stream for stream in declared.streams if stream.name == position.stream), None)
        if stream and position.stream in progress:
            released = StreamProgress(position.sequence_value or 0, position.writers, {}, may_be_ahead)
            if fault := check_regression(stream, released, progress[position.stream]):
                yield report_fault(fault)


def _may_be_ahead(connection: DuckDBPyConnection, settings: Settings, run_id: str) -> bool:
    """Return whether the run read a standby, or may have read a standby."""
    duckdb_reader.create_views(connection, settings, None, [_SNAPSHOTS])
    if _SNAPSHOTS not in list_catalog_entries(settings):
        return True
    connection.execute(f"set variable run = {quote_literal(run_id)}")
    rows = connection.execute(f"select bool_or(in_recovery) from {_SNAPSHOTS} where run_id = getvariable('run')")  # noqa: S608
    return rows.fetchone() != (False,)


def report_fault(fault: SequenceFault) -> DoctorFinding:
    """Return the finding of a fault, with the SQL that repairs it."""
    return DoctorFinding(FindingLevel.FAIL, _SUBJECT, fault.message, f"{_ADVICE}\n{fault.repair}")
