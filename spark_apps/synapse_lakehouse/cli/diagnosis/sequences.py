"""Would Synapse start again: do its sequences fit its positions and rows, and is none behind where it was?"""

from collections.abc import Mapping
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli import positions
from synapse_lakehouse.cli.diagnosis.finding import Finding, Findings, Level
from synapse_lakehouse.lake import duck
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.streams import startup
from synapse_lakehouse.streams.sequences import Fault, Standing, went_back

_SUBJECT: Final = "sequences"
_ADVICE: Final = "Review, and run with all of Synapse stopped:"


def examine(declared: Catalogue, now: Mapping[str, Standing]) -> Findings:
    """Does what Synapse checks at its start hold?"""
    wrong = [fault for _, fault in startup.misfits(declared, now)]
    yield from map(_finding, wrong)
    if now and not wrong:
        message = f"{len(now)} sequences fit their positions and rows, so Synapse would start again"
        yield Finding(Level.OK, _SUBJECT, message)


def compare(
    connection: DuckDBPyConnection, settings: Settings, declared: Catalogue, now: Mapping[str, Standing]
) -> Findings:
    """Is no position behind where the latest release saw it?"""
    known = duck.releases(connection, settings)
    if not known:
        return
    for one in positions.read(connection, settings, known[0]):
        stream = next((stream for stream in declared.streams if stream.name == one.stream), None)
        if stream and one.stream in now:
            fault = went_back(stream, Standing(one.sequence_value or 0, one.writers, {}), now[one.stream])
            if fault:
                yield _finding(fault)


def _finding(fault: Fault) -> Finding:
    return Finding(Level.FAIL, _SUBJECT, fault.message, f"{_ADVICE}\n{fault.repair}")
