"""The examinations of ``lakehouse doctor``: each says what it found and, where something is amiss, what to do."""

from contextlib import ExitStack

from synapse_lakehouse.cli.diagnosis import duplicates, lake, machine, sequences, source
from synapse_lakehouse.cli.diagnosis.finding import Finding, Level
from synapse_lakehouse.embedded.postgres import PostgresError
from synapse_lakehouse.embedded.services import ServicesError, connected
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.connection import connect
from synapse_lakehouse.source.errors import SourceError
from synapse_lakehouse.streams import startup
from synapse_lakehouse.streams.sequences import Standing


def examine(given: Settings, *, deep: bool = False) -> list[Finding]:
    """All findings, with the servers that the settings leave out running meanwhile.

    :param deep: read every key in the source, and what the newest release says of the database as a whole.
    """
    found = [*machine.java(), *machine.jars(given), *machine.catalogue()]
    needs_server = given.uses_sample or not given.lakehouse_catalog_uri
    if needs_server and not (given.lakehouse_home / "postgres").exists():
        message = f"The embedded PostgreSQL in {given.lakehouse_home} is not set up yet."
        return [*found, *machine.disk(given), Finding(Level.WARN, "set-up", message, "Run `make run`, which does it.")]
    with ExitStack() as stack:
        try:
            settings = stack.enter_context(connected(given, source=False))
        except (PostgresError, ServicesError) as error:
            return [*found, *machine.disk(given), Finding(Level.FAIL, "lake", str(error))]
        database_bytes, declared = None, source.declared_or_none()
        standings: dict[str, Standing] = {}
        try:
            with connected(given) as both, connect(both) as connection:
                found += source.examine(connection, both, is_sample=given.uses_sample)
                if declared:
                    standings = startup.read(connection, declared)
                    found += sequences.examine(declared, standings)
                database_bytes = source.size(connection)
                if deep and declared:
                    found += duplicates.examine(connection, declared)
        except (PostgresError, ServicesError, SourceError) as error:
            found.append(Finding(Level.FAIL, "source", str(error)))
        found += [*machine.disk(settings, database_bytes), *machine.privacy(settings)]
        return [*found, *lake.examine(settings, declared, standings, deep=deep)]
