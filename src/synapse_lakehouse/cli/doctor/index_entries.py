"""Check that the indexes of chosen tables have exactly one entry for each row, under the row's key."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor.duplicates import SLOW_ADVICE
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.postgres.connection import Connection, has_table
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex, read_indexes
from synapse_lakehouse.postgres.indexes.heap_comparison import IndexComparison, compare_with_heap
from synapse_lakehouse.postgres.indexes.index_faults import IndexFaultKind

_SUBJECT: Final = "indexes"
_TITLES: Final = {
    IndexFaultKind.FOREIGN: "entries that point to rows of other keys",
    IndexFaultKind.MISSING: "rows without an entry",
    IndexFaultKind.REPEATED: "repeated entries",
    IndexFaultKind.UNREADABLE: "read errors",
}
_MAX_EXAMPLES: Final = 3


def find_tables(declared: Catalogue, names: Sequence[str]) -> list[Table]:
    """Return the copied tables called ``names``.

    :raises LakehouseError: when the catalogue does not list one of them.
    """
    tables = {table.name: table for table in declared.copied_tables()}
    if unknown := [name for name in names if name not in tables]:
        raise LakehouseError(
            f"No copied table is called {', '.join(unknown)}. docs/reference/tables.md lists the tables in bronze."
        )
    return [tables[name] for name in names]


def examine(connection: Connection, tables: Sequence[Table]) -> Findings:
    """Compare each B-tree index of ``tables`` with the heap, each in its own transaction."""
    with output.progress_bar() as bar:
        for table in tables:
            if not has_table(connection, table.name):
                message = f"{table.name} is not checked: this release of Synapse does not have the table."
                yield DoctorFinding(FindingLevel.WARN, _SUBJECT, message)
                continue
            indexes = read_indexes(connection, table)
            connection.rollback()
            for name, reason in indexes.uncovered.items():
                yield DoctorFinding(FindingLevel.WARN, _SUBJECT, f"{name} of {table.name} is not checked: {reason}.")
            task = bar.add_task(f"Reading the indexes of {table.name}", total=len(indexes.checkable))
            for index in indexes.checkable:
                bar.update(task, description=f"Reading {index.name} and {table.name}")
                yield _check(connection, index)
                bar.advance(task)


def _check(connection: Connection, index: BtreeIndex) -> DoctorFinding:
    name = f"{index.name} of {index.table}"
    try:
        compared = compare_with_heap(connection, index)
    except ReadError as error:
        message = f"{name} could not be read completely: {error}"
        return DoctorFinding(FindingLevel.WARN, _SUBJECT, message, SLOW_ADVICE)
    if compared.not_checked:
        return DoctorFinding(FindingLevel.WARN, _SUBJECT, f"{name} is not checked: {compared.not_checked}.")
    if compared.faults or compared.differing:
        return DoctorFinding(FindingLevel.FAIL, _SUBJECT, f"{name} has {_describe(compared)}", _advice(index))
    message = f"{name}: {compared.entries:,} entries match the heap ({compared.seconds:.1f} s)"
    return DoctorFinding(FindingLevel.OK, _SUBJECT, message)


def _describe(compared: IndexComparison) -> str:
    counts = Counter(fault.kind for fault in compared.faults)
    kinds = ", ".join(f"{counts[kind]:,} {title}" for kind, title in _TITLES.items() if counts[kind])
    examples = []
    for kind in _TITLES:
        rows = [fault.row for fault in compared.faults if fault.kind is kind][:_MAX_EXAMPLES]
        if rows:
            listed = "; ".join(", ".join(map(output.format_value, row)) for row in rows)
            examples.append(f"{kind}: {listed}{'; …' if counts[kind] > len(rows) else ''}")
    partly = ""
    if compared.examined < compared.differing:
        partly = (
            f" in {compared.examined:,} of the {compared.differing:,} parts of the table that differ (the others were "
            "not examined)"
        )
    return f"{kinds}{partly}; {compared.entries:,} entries, {compared.rows:,} rows. " + ". ".join(examples)


def _advice(index: BtreeIndex) -> str:
    return (
        "Stop Synapse: it reads, changes and deletes the rows that this index returns. Run no statement that deletes "
        f"rows by this index. Copy the index's file and its segments for an examination, then run: REINDEX INDEX "
        f'"{index.name}". Rows may be lost already; `lakehouse state restore-plan` finds them in earlier releases. '
        "See docs/runbooks/integrity.md."
    )
