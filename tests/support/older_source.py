"""A Synapse database without the tables and columns that later releases of Synapse added."""

from typing import Final

import psycopg

from synapse_lakehouse.catalogue import Catalogue

_LATER: Final = "_of_later_release"

Source = psycopg.Connection[tuple[object, ...]]


def hide_additions(source: Source, declared: Catalogue) -> set[str]:
    """Rename all tables and columns that declare ``since``, and delete their schema deltas; return their names.

    :param source: a connection with autocommit.
    """
    source.execute("create table deltas_of_later_release as select * from applied_schema_deltas")
    source.execute("delete from applied_schema_deltas where file = any(%s)", [declared.list_deltas()])
    return _rename(source, declared, "", _LATER)


def show_additions(source: Source, declared: Catalogue) -> None:
    """Undo :func:`hide_additions`, as an upgrade of Synapse would."""
    _rename(source, declared, _LATER, "")
    source.execute(
        "insert into applied_schema_deltas select * from deltas_of_later_release except table applied_schema_deltas"
    )
    source.execute("drop table deltas_of_later_release")


def _rename(source: Source, declared: Catalogue, old: str, new: str) -> set[str]:
    names = set()
    for stream in declared.streams:
        if declared.is_evolving(stream):
            source.execute(f"alter sequence {stream.sequence}{old} rename to {stream.sequence}{new}".encode())
    for table in declared.tables:
        if table.is_evolving:
            source.execute(f"alter table {table.name}{old} rename to {table.name}{new}".encode())
            names.add(table.name)
            continue
        for name in (column.name for column in table.columns if column.is_evolving):
            source.execute(f"alter table {table.name} rename column {name}{old} to {name}{new}".encode())
            names.add(f"{table.name}.{name}")
    return names
