"""Tables, columns and sequences that an upgrade of Synapse added, and that the role may not read yet."""

from collections.abc import Collection
from dataclasses import replace

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.postgres.access.grants import list_required_grants
from synapse_lakehouse.postgres.access.preflight import explain_missing_grants
from synapse_lakehouse.postgres.connection import Connection, has_table
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def exclude_ungranted_additions(catalogue: Catalogue, connection: Connection) -> Catalogue:
    """Return ``catalogue`` without the tables, columns and streams that an upgrade added and the role may not read.

    So the streams that existed before an upgrade can be observed until an operator runs the SQL of ``lakehouse
    grants``. A warning in the log contains the missing grants.

    :param catalogue: as the database has it (:func:`absent_objects.read_source_catalogue`).
    """
    missing = find_ungranted_additions(catalogue, connection)
    if missing:
        log.warning(
            "Synapse was upgraded, and the role may not read the tables and columns that the upgrade added. This task "
            "leaves them out. Run the SQL of `lakehouse grants` again. %s",
            " ".join(missing.values()),
        )
    return exclude_additions(catalogue, missing)


def find_ungranted_additions(catalogue: Catalogue, connection: Connection) -> dict[str, str]:
    """Return the tables, sequences and columns that an upgrade of Synapse added and that the role may not read.

    The keys are names such as ``threads`` (a table or a sequence) and ``events.depth`` (a column). The values are
    messages with the missing GRANT statement.
    """
    missing = {}
    for grant in list_required_grants(catalogue):
        if not (grant.is_evolving or grant.evolving) or not has_table(connection, grant.name):
            continue
        parts = {f"{grant.name}.{name}": replace(grant, columns=(name,)) for name in grant.evolving}
        if grant.is_evolving:
            always = tuple(name for name in grant.columns if name not in grant.evolving)
            parts[grant.name] = replace(grant, columns=always)
        for name, part in parts.items():
            for message in explain_missing_grants(connection, [part]):
                missing[name] = message
    return missing


def exclude_additions(catalogue: Catalogue, missing: Collection[str]) -> Catalogue:
    """Return ``catalogue`` without the additions in ``missing``: names as in :func:`find_ungranted_additions`."""
    if not missing:
        return catalogue
    tables = {
        table.name
        for stream in catalogue.streams
        if stream.sequence in missing and catalogue.is_evolving(stream)
        for table, _ in catalogue.backing_tables(stream.name)
    }
    columns = {
        f"{table.name}.{column.name}"
        for table in catalogue.tables
        for column in table.columns
        if any(f"{table.name}.{name}" in missing for name in column.source_columns)
    }
    return catalogue.restrict_to_source({*missing, *tables, *columns})
