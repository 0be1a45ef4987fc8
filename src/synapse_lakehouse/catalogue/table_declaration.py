"""Declarations of the tables of Synapse's database that bronze contains."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import model_validator

from synapse_lakehouse.catalogue.base_declaration import Identifier
from synapse_lakehouse.catalogue.column_declaration import Column
from synapse_lakehouse.catalogue.references import Reference
from synapse_lakehouse.catalogue.stream_declaration import Contiguity
from synapse_lakehouse.catalogue.synapse_schema_change import Evolving


class LoadMode(StrEnum):
    """How the rows of a table change. Runs read only the changed rows of copied tables (ADR 0009)."""

    APPEND = "append"
    """Rows are immutable and have a stream ID, in this table or in the table that this table ``follows``."""
    MERGE = "merge"
    """Rows move to a higher stream ID when they change."""
    REPLACE = "replace"
    """No stream ID shows which rows changed."""
    MEASURE = "measure"
    """Rows are counted in the PostgreSQL snapshot and never copied."""


class Database(StrEnum):
    """A database of Synapse, by the store in its ``data_stores``. One database can have both stores."""

    MAIN = "main"
    STATE = "state"


class Table(Evolving):
    """A table of Synapse's database as bronze contains it: ``bronze.<name>`` with ``columns`` in this order.

    * ``primary_key``: columns that identify a row; ``key_enforced``: Synapse has a unique index on them.
    * ``nullable_key``: columns of the key that may be NULL.
    * ``repeats_keys``: equal rows may legitimately occur more than once.
    * ``load``: how the rows change; ``replace`` unless declared.
    * ``streams``: by stream, the column with the stream's IDs; ``repeats_ids``: several rows may share an ID.
    * ``follows``: a table with a stream ID. Rows of both tables with the same ``event_id`` belong together.
    * ``contiguity``: the contiguity of this table if it differs from the stream's; ``contiguity_why``: the reason.
    * ``rises_per``: columns of an ``upsert`` table (default: the key). Among rows with equal values in these columns,
      IDs only increase.
    * ``references``: references of the table's columns to other tables.
    * ``database``: the database that has the table if state has a database of its own.
    """

    name: Identifier
    description: str
    database: Database = Database.MAIN
    primary_key: tuple[Identifier, ...]
    key_enforced: bool
    nullable_key: tuple[Identifier, ...] = ()
    repeats_keys: bool = False
    load: LoadMode = LoadMode.REPLACE
    streams: Mapping[Identifier, Identifier]
    repeats_ids: bool = False
    follows: Identifier | None = None
    writer_column: Identifier | None
    contiguity: Contiguity | None = None
    contiguity_why: str = ""
    rises_per: tuple[Identifier, ...] = ()
    references: tuple[Reference, ...] = ()
    columns: tuple[Column, ...]

    @model_validator(mode="after")
    def _check_consistency(self) -> "Table":
        for problem in (*self._column_problems(), *self._key_problems(), *self._load_problems()):
            raise ValueError(f"table {self.name}: {problem}")
        return self

    def _column_problems(self) -> Iterator[str]:
        declared = {column.name for column in self.columns}
        served = {column.name for column in self.columns if column.only_served}
        ids_and_writer = {*self.streams.values(), *filter(None, [self.writer_column])}
        referring = {column for reference in self.references for column in (reference.column, *reference.equal)}
        needed = {*self.primary_key, *self.rises_per, *ids_and_writer, *referring}
        if missing := needed - declared:
            yield f"not among its columns: {', '.join(sorted(missing))}"
        if len(declared) != len(self.columns):
            yield "a column is listed twice"
        if self.load is LoadMode.MEASURE and declared - served != ids_and_writer:
            yield "a measured table may have only stream IDs, a writer column and only_served columns"
        if evolving := needed & {column.name for column in self.columns if column.is_evolving}:
            yield f"some releases of Synapse lack a key, stream or reference column: {', '.join(sorted(evolving))}"
        if self.load is not LoadMode.MEASURE and served:
            yield "only_served columns are allowed only in measured tables, whose rows are not copied"

    def _key_problems(self) -> Iterator[str]:
        if self.load is not LoadMode.MEASURE and not self.primary_key:
            yield "a copied table needs a primary_key"
        if unknown := set(self.nullable_key) - set(self.primary_key):
            yield f"nullable_key is not in its primary_key: {', '.join(sorted(unknown))}"
        if self.key_enforced and self.repeats_keys:
            yield "repeats_keys and key_enforced exclude each other"

    def _load_problems(self) -> Iterator[str]:
        if self.load is LoadMode.APPEND and bool(self.streams) is bool(self.follows):
            yield "an appended table needs either streams or follows"
        if self.load is LoadMode.MERGE and not self.streams:
            yield "a merged table needs a stream"
        if bool(self.contiguity) is not bool(self.contiguity_why) or (self.contiguity and not self.streams):
            yield "contiguity needs streams and a contiguity_why"

    def column(self, name: str) -> Column:
        """Return the column called ``name``.

        :raises KeyError: if the table does not list it.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name}.{name} is not in the catalogue")
