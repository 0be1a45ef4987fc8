"""Check that no unique key occurs twice, without the index."""

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows import duplicates

_SUBJECT = "duplicates"
_ADVICE = (
    "The unique index is corrupt, often after a change of the operating system's collations. Stop Synapse, "
    "delete the wrong rows, then REINDEX TABLE; see docs/runbooks/duplicate-ids.md."
)
_SLOW = "Raise LAKEHOUSE_STATEMENT_TIMEOUT_SECONDS, or use a replica, and run this again."


def examine(connection: Connection, declared: Catalogue) -> Findings:
    """Read every table with a unique key, one per transaction."""
    tables, checked = duplicates.list_tables_with_unique_key(declared), 0
    with output.progress_bar() as bar:
        task = bar.add_task("Reading all keys", total=len(tables))
        for table in tables:
            bar.update(task, description=f"Reading all keys of {table.name}")
            try:
                found = duplicates.find_duplicate_keys(connection, table)
            except ReadError as error:
                yield DoctorFinding(
                    FindingLevel.WARN, _SUBJECT, f"{table.name} could not be read completely: {error}", _SLOW
                )
            else:
                checked += not found.keys
                if found.keys:
                    yield _finding(table.name, table.primary_key, found)
            bar.advance(task)
    yield DoctorFinding(FindingLevel.OK, _SUBJECT, f"{checked} of {len(tables)} tables have no duplicate key")


def _finding(table: str, key: tuple[str, ...], found: duplicates.DuplicateKeys) -> DoctorFinding:
    first = "; ".join(", ".join(map(output.format_value, one)) for one in found.first)
    keys = f"{found.keys:,} key{'' if found.keys == 1 else 's'} ({', '.join(key)})"
    message = f"{table} has {keys} that several rows have: {first}"
    return DoctorFinding(
        FindingLevel.FAIL, _SUBJECT, message + ("; …" if found.keys > len(found.first) else ""), _ADVICE
    )
