"""Check that no unique key occurs twice. The check does not use the unique index."""

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows import duplicates

_SUBJECT = "duplicates"
_ADVICE = (
    "The unique index is corrupt, often after a change of the operating system's collations. Stop Synapse. Turn "
    "index scans off, and delete the wrong rows by their ctid. Then run REINDEX TABLE. See "
    "docs/runbooks/duplicate-ids.md."
)
SLOW_ADVICE = "Raise LAKEHOUSE_STATEMENT_TIMEOUT_SECONDS, or use a replica. Then run this command again."


def examine(connection: Connection, declared: Catalogue) -> Findings:
    """Read every table with a unique key, each in its own transaction."""
    tables, checked = duplicates.list_tables_with_unique_key(declared), 0
    with output.progress_bar() as bar:
        task = bar.add_task("Reading all keys", total=len(tables))
        for table in tables:
            bar.update(task, description=f"Reading all keys of {table.name}")
            try:
                duplicate = duplicates.find_duplicate_keys(connection, table)
            except ReadError as error:
                yield DoctorFinding(
                    FindingLevel.WARN, _SUBJECT, f"{table.name} could not be read completely: {error}", SLOW_ADVICE
                )
            else:
                checked += not duplicate.keys
                if duplicate.keys:
                    yield _finding(table.name, table.primary_key, duplicate)
            bar.advance(task)
    yield DoctorFinding(FindingLevel.OK, _SUBJECT, f"{checked} of {len(tables)} tables have no duplicate key")


def _finding(table: str, key: tuple[str, ...], duplicate: duplicates.DuplicateKeys) -> DoctorFinding:
    examples = "; ".join(", ".join(map(output.format_value, values)) for values in duplicate.first)
    keys = f"{duplicate.keys:,} duplicate key{'' if duplicate.keys == 1 else 's'} ({', '.join(key)})"
    ellipsis = "; …" if duplicate.keys > len(duplicate.first) else ""
    return DoctorFinding(FindingLevel.FAIL, _SUBJECT, f"{table} has {keys}: {examples}{ellipsis}", _ADVICE)
