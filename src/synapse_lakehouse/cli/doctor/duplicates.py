"""Does no key that has to be unique occur twice, whatever the index says?"""

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows import duplicates

_SUBJECT = "duplicates"
_ADVICE = (
    "The index that should forbid it is broken, often by an upgrade of the operating system's collations. With Synapse "
    "stopped, delete the wrong rows, then REINDEX TABLE; see docs/runbooks/duplicate-ids.md."
)
_SLOW = "Raise LAKEHOUSE_STATEMENT_TIMEOUT_SECONDS, or ask a replica, and run this again."


def examine(connection: Connection, declared: Catalogue) -> Findings:
    """Read every table with a unique key in full, a table in each transaction."""
    tables, sound = duplicates.list_tables_with_unique_key(declared), 0
    with output.progress_bar() as bar:
        task = bar.add_task("Reading all keys", total=len(tables))
        for table in tables:
            bar.update(task, description=f"Reading all keys of {table.name}")
            try:
                found = duplicates.find_duplicate_keys(connection, table)
            except ReadError as error:
                yield DoctorFinding(
                    FindingLevel.WARN, _SUBJECT, f"{table.name} could not be read in full: {error}", _SLOW
                )
            else:
                sound += not found.keys
                if found.keys:
                    yield _finding(table.name, table.primary_key, found)
            bar.advance(task)
    yield DoctorFinding(
        FindingLevel.OK, _SUBJECT, f"{sound} of {len(tables)} tables were read in full and repeat no key"
    )


def _finding(table: str, key: tuple[str, ...], found: duplicates.DuplicateKeys) -> DoctorFinding:
    first = "; ".join(", ".join(map(output.format_value, one)) for one in found.first)
    keys = f"{found.keys:,} key{'' if found.keys == 1 else 's'} ({', '.join(key)})"
    message = f"{table} has {keys} that several rows share: {first}"
    return DoctorFinding(
        FindingLevel.FAIL, _SUBJECT, message + ("; …" if found.keys > len(found.first) else ""), _ADVICE
    )
