"""The catalogue: all streams and tables, checked for consistency."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import field_validator, model_validator

from synapse_lakehouse.catalogue.base_declaration import Declaration
from synapse_lakehouse.catalogue.stream_declaration import Contiguity, StartupSequence, Stream
from synapse_lakehouse.catalogue.synapse_schema_change import Evolving
from synapse_lakehouse.catalogue.table_declaration import Database, LoadMode, Table


def effective_contiguity(stream: Stream, table: Table) -> Contiguity:
    """Return the contiguity of the rows of ``table`` in ``stream``: the table's own, or else the stream's."""
    return table.contiguity or stream.contiguity


class Catalogue(Declaration):
    """All streams and tables, and the range of the supported schema versions of Synapse.

    * ``oldest_release``: the first release of Synapse that is supported.
    * ``databases``: the stores of Synapse (main, state) that the database with these tables contains.
    """

    oldest_release: str
    oldest_schema_version: int
    newest_schema_version: int
    streams: tuple[Stream, ...]
    checked_at_start: tuple[StartupSequence, ...] = ()
    tables: tuple[Table, ...]
    databases: tuple[Database, ...] = tuple(Database)

    @field_validator("streams", "checked_at_start", "tables")
    @classmethod
    def _check_unique_names(cls, declared: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [declaration.name for declaration in declared]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"declared twice: {', '.join(sorted(repeated))}")
        return declared

    @model_validator(mode="after")
    def _check_references(self) -> "Catalogue":
        declared = {stream.name for stream in self.streams}
        for table in self.tables:
            if missing := set(table.streams) - declared:
                raise ValueError(f"table {table.name} refers to unknown streams: {', '.join(sorted(missing))}")
        if unbacked := declared - {name for table in self.tables for name in table.streams}:
            raise ValueError(f"streams without a table: {', '.join(sorted(unbacked))}")
        for table in self.tables:
            for stream in table.streams:
                self._check_rises_per(table, self.stream(stream))
        appended = {table.name for table in self.tables if table.load is LoadMode.APPEND and table.streams}
        for table in self.tables:
            if table.follows and table.follows not in appended:
                raise ValueError(
                    f"table {table.name} follows {table.follows}, which is not an append table with a stream"
                )
        return self

    @model_validator(mode="after")
    def _check_targets(self) -> "Catalogue":
        columns = {f"{table.name}.{column.name}" for table in self.copied_tables() for column in table.columns}
        for table in self.tables:
            for reference in table.references:
                if missing := {f"{table.name}.{reference.column}", *reference.targets} - columns:
                    raise ValueError(f"a reference contains columns that are not copied: {', '.join(sorted(missing))}")
                if evolving := {target for target in reference.targets if self._is_column_evolving(target)}:
                    raise ValueError(
                        "a reference may not point to a table or column that some releases of Synapse lack: "
                        f"{', '.join(sorted(evolving))}"
                    )
                target, _, key = reference.to.partition(".")
                if reference.equal and self.table(target).primary_key != (key,):
                    raise ValueError(f"table {table.name}: a reference with `equal` must point to a primary key")
        return self

    def _is_column_evolving(self, target: str) -> bool:
        table, _, column = target.partition(".")
        return self.table(table).is_evolving or self.table(table).column(column).is_evolving

    def _check_rises_per(self, table: Table, stream: Stream) -> None:
        is_upsert = effective_contiguity(stream, table) is Contiguity.UPSERT and table.load is not LoadMode.MEASURE
        if table.rises_per and not is_upsert:
            raise ValueError(f"table {table.name}: only upsert tables may declare rises_per")
        if is_upsert and table.streams[stream.name] in (table.rises_per or table.primary_key):
            raise ValueError(
                f"table {table.name}: declare rises_per, because the column of the stream's IDs is in the key"
            )

    def table(self, name: str) -> Table:
        """Return the table called ``name``.

        :raises KeyError: if the catalogue does not list it.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(f"bronze.{name} is not in the catalogue")

    def stream(self, name: str) -> Stream:
        """Return the stream called ``name``.

        :raises KeyError: if the catalogue does not list it.
        """
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(f"stream {name} is not in the catalogue")

    def copied_tables(self) -> tuple[Table, ...]:
        """Return the tables whose rows are copied to bronze."""
        return tuple(table for table in self.tables if table.load is not LoadMode.MEASURE)

    def measured_tables(self) -> tuple[Table, ...]:
        """Return the tables whose rows are only counted."""
        return tuple(table for table in self.tables if table.load is LoadMode.MEASURE)

    def without_tables(self, names: Collection[str]) -> "Catalogue":
        """Return this catalogue without the tables called ``names``."""
        return self.model_copy(
            update={
                "tables": tuple(table for table in self.tables if table.name not in names),
                "checked_at_start": tuple(
                    sequence for sequence in self.checked_at_start if sequence.ids.keys().isdisjoint(names)
                ),
            }
        )

    def of_database(self, database: Database) -> "Catalogue":
        """Return the part of this catalogue that is in ``database`` if state has a database of its own."""
        tables = tuple(table for table in self.tables if table.database is database)
        of_state = {table.name for table in self.tables if table.database is Database.STATE}
        sequences = tuple(
            sequence
            for sequence in self.checked_at_start
            if sequence.ids.keys().isdisjoint(of_state) is (database is Database.MAIN)
        )
        streams = _backed_streams(self.streams, tables)
        changes = {"tables": tables, "checked_at_start": sequences, "streams": streams, "databases": (database,)}
        return self.model_copy(update=changes)

    def is_evolving(self, stream: Stream) -> bool:
        """Return whether some supported releases of Synapse lack the stream, because they lack all of its tables."""
        return all(table.is_evolving for table, _ in self.backing_tables(stream.name))

    def explain_earlier_version(self, version: int | str) -> str:
        """Return why a database with a schema version before the oldest supported version is refused."""
        return (
            f"This database has Synapse's schema version {version}, but the lakehouse needs Synapse "
            f"{self.oldest_release} or later."
        )

    def explain_later_version(self, version: int) -> str | None:
        """Return a warning if ``version``, which Synapse declares compatible, is later than the known versions."""
        if version <= self.newest_schema_version:
            return None
        return (
            f"The database has Synapse's schema version {version}, and this version of the lakehouse knows versions up "
            f"to {self.newest_schema_version}. Synapse declares version {version} compatible, so all known tables are "
            "read as before. Upgrade the lakehouse to a version that also knows the new tables and columns."
        )

    def list_deltas(self) -> list[str]:
        """Return the deltas of the schema changes that add or remove a table or a column of the catalogue."""
        declarations = [*self.tables, *(column for table in self.tables for column in table.columns)]
        changes = [change for declared in declarations for change in (declared.since, declared.until) if change]
        return sorted({change.delta for change in changes})

    def find_absent(self, columns: Mapping[str, Collection[str]], deltas: Collection[str]) -> Iterator[str]:
        """Yield the tables (``threads``) and columns (``events.depth``) that a database lacks because of its release.

        :param columns: names of the database's columns, by table.
        :param deltas: the schema changes that were applied to the database.
        """
        for table in self.tables:
            if table.name not in columns:
                if table.may_be_absent(deltas):
                    yield table.name
                continue
            for column in table.columns:
                if column.may_be_absent(deltas) and not set(column.source_columns) <= set(columns[table.name]):
                    yield f"{table.name}.{column.name}"

    def describe_release(self, absent: Collection[str]) -> str:
        """Return the range of Synapse's releases that lack exactly ``absent`` (see :meth:`find_absent`), as text."""
        declared: dict[str, Evolving] = {table.name: table for table in self.tables}
        for table in self.tables:
            if table.name not in absent:
                declared |= {f"{table.name}.{column.name}": column for column in table.columns}
        changes = [(change.since.release, name not in absent) for name, change in declared.items() if change.since]
        changes += [(change.until.release, name in absent) for name, change in declared.items() if change.until]
        first = max([self.oldest_release, *(at for at, is_made in changes if is_made)], key=_version_parts)
        beyond = min((at for at, is_made in changes if not is_made), key=_version_parts, default=None)
        if first == self.oldest_release and beyond:
            # Releases before the oldest supported release may have the same schema, so the range has no start.
            return f"before {beyond}"
        return f"{first} or later" + (f", before {beyond}" if beyond else "")

    def restrict_to_source(self, absent: Collection[str]) -> "Catalogue":
        """Return the catalogue of a database that lacks the tables and columns ``absent`` (:meth:`find_absent`).

        The catalogue lists no absent table, and no stream without a table. Absent columns have a constant value.
        """
        present = self.without_tables(absent)
        tables = tuple(_replace_absent_columns(table, absent) for table in present.tables)
        return present.model_copy(update={"tables": tables, "streams": _backed_streams(self.streams, tables)})

    def restrict_to_lake(self, absent: Collection[str]) -> "Catalogue":
        """Return the catalogue of the lake's copy of a database that lacks the tables and columns ``absent``.

        The lake has every table: a table that the database lacks is empty. Streams that the database lacks are not
        measured, so the catalogue does not list them.
        """
        streams = self.restrict_to_source(absent).streams
        names = {stream.name for stream in streams}
        tables = tuple(
            table.model_copy(update={"streams": {name: table.streams[name] for name in table.streams if name in names}})
            for table in self.tables
        )
        return self.model_copy(update={"tables": tables, "streams": streams})

    def stream_table_pairs(self) -> list[tuple[Stream, Table]]:
        """Return each stream with each copied table that backs it."""
        copied = self.copied_tables()
        return [(stream, table) for stream in self.streams for table in copied if stream.name in table.streams]

    def backing_tables(self, stream: str) -> tuple[tuple[Table, str], ...]:
        """Return the tables that back ``stream``, each with the column of its IDs."""
        return tuple((table, table.streams[stream]) for table in self.tables if stream in table.streams)

    def sequence_names(self) -> list[str]:
        """Return the names of all sequences that are read."""
        return sorted(
            {stream.sequence for stream in self.streams} | {sequence.name for sequence in self.checked_at_start}
        )

    def uncatalogued_id_columns(self) -> dict[str, set[str]]:
        """Return, by table, the ID columns of tables that are not in bronze. Only their furthest IDs are read."""
        catalogued = {table.name for table in self.tables}
        columns: dict[str, set[str]] = {}
        for sequence in self.checked_at_start:
            for table, column in sequence.ids.items():
                if table not in catalogued:
                    columns.setdefault(table, set()).add(column)
        return columns


def _replace_absent_columns(table: Table, absent: Collection[str]) -> Table:
    columns = tuple(
        column.as_absent() if f"{table.name}.{column.name}" in absent else column for column in table.columns
    )
    return table.model_copy(update={"columns": columns})


def _backed_streams(streams: tuple[Stream, ...], tables: tuple[Table, ...]) -> tuple[Stream, ...]:
    return tuple(stream for stream in streams if any(stream.name in table.streams for table in tables))


def _version_parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
