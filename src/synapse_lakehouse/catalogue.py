"""The catalogue: every stream and table of Synapse that the lakehouse knows, read from dbt's own sources file.

It is declared once, in ``dbt/models/bronze/_synapse__sources.yml``. The columns listed there are the allow-list: what
is not listed is never read from the source.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Identifier = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]

POSTGRES_TYPES = {
    "string": "text",
    "bigint": "bigint",
    "int": "integer",
    "boolean": "boolean",
    "double": "double precision",
}


class LoadMode(StrEnum):
    """What kind of rows a table has. Of all that are copied the rows that changed are read (ADR 0009)."""

    APPEND = "append"
    """Facts with a stream id, their own or that of the table they follow."""
    MERGE = "merge"
    """Rows move to a higher stream id when they change."""
    REPLACE = "replace"
    """No stream id tells what changed."""
    MEASURE = "measure"
    """Counted inside the snapshot, never copied."""


class Contiguity(StrEnum):
    """What becomes of a stream's rows below the bound, and so what can be said of an id that has none."""

    APPEND_ONLY = "append_only"
    """Rows stay, unless what they belong to is purged. A missing id never gets a row; one that had a row is lost."""
    UPSERT = "upsert"
    """A row moves to a higher id when its key is written again: ids only rise per key, missing ones mean nothing."""
    PRUNED = "pruned"
    """Rows are deleted from the lowest id upwards."""
    TRANSIENT = "transient"
    """A row is deleted when it was acknowledged, or has expired."""
    UNCHECKED = "unchecked"
    """Nothing is known that a check could hold."""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JsonKeysProjection(_Declared):
    """Project a JSON text column to an object with the listed top-level keys only (absent keys stay absent)."""

    kind: Literal["json_keys"]
    source: Identifier
    keys: tuple[str, ...]


class JsonKeysForTypeProjection(_Declared):
    """As :class:`JsonKeysProjection`, but only in rows whose ``type_column`` equals ``type``; NULL in all others."""

    kind: Literal["json_keys_of_type"]
    source: Identifier
    type_column: Identifier
    type: str
    keys: tuple[str, ...]


class DayProjection(_Declared):
    """Round a time in milliseconds since the epoch down to its UTC day."""

    MILLISECONDS: ClassVar[int] = 86_400_000

    kind: Literal["day"]
    source: Identifier


class ListForTypeProjection(_Declared):
    """A list, in rows whose ``type_column`` is one of ``types``; in all others, a list of as many NULLs."""

    kind: Literal["list_of_type"]
    source: Identifier
    type_column: Identifier
    types: tuple[str, ...]


Projection = Annotated[
    JsonKeysProjection | JsonKeysForTypeProjection | ListForTypeProjection | DayProjection, Field(discriminator="kind")
]


class Column(_Declared):
    """A column that may leave the source.

    ``source_type`` is PostgreSQL's name of the type in the source, where it is not the usual one for ``data_type``.
    With ``holds_content`` it holds what people said, of which no copy may be left in metadata. With ``changes`` Synapse
    may write it anew in a row that is there, although rows of its table are facts. With ``only_served`` it is read for
    followers of replication and never copied: no run needs the right to read it. With ``has_secrets`` its source also
    has values that give access to accounts, so ``lakehouse grants`` gives the right to read it only on request.
    """

    name: Identifier
    data_type: Literal["string", "bigint", "int", "boolean", "double"]
    description: Annotated[str, Field(min_length=1)]
    source_type: str
    projection: Projection | None = None
    holds_content: bool = False
    changes: bool = False
    only_served: bool = False
    has_secrets: bool = False

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Names of the source's columns that it is made from."""
        if self.projection is None:
            return (self.name,)
        if isinstance(self.projection, JsonKeysForTypeProjection | ListForTypeProjection):
            return (self.projection.source, self.projection.type_column)
        return (self.projection.source,)


class Stream(_Declared):
    """One of Synapse's streams (``synapse.replication.tcp.streams``).

    ``stream_positions`` is its name in that table (None: Synapse keeps no position); ``writers`` the key of
    ``stream_writers`` in homeserver.yaml, ``master`` (hard coded) or ``any``; ``sign`` of the ids in tables.
    ``unique_ids``: one row per id holds in each backing table that does not say ``repeats_ids``, so repeated ids are
    duplicates. ``immutable_below_bound``: no new id may appear at or below an accepted bound. ``contiguity``: what
    becomes of its rows. ``gap_budget``: percent of newly closed ids that may be without a row before somebody is told;
    None where ids are spent freely. ``why`` says in a sentence what a check may assert.
    """

    name: Identifier
    description: str
    stream_positions: str | None
    sequence: str
    writers: str
    sign: Literal["positive", "negative"]
    unique_ids: bool
    immutable_below_bound: bool
    contiguity: Contiguity
    gap_budget: Annotated[int, Field(ge=1, le=100)] | None = None
    why: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _bound_is_there(self) -> "Stream":
        if self.contiguity is Contiguity.APPEND_ONLY and not (self.stream_positions and self.immutable_below_bound):
            raise ValueError(f"stream {self.name}: without positions and a bound it cannot be append_only")
        if self.gap_budget and self.contiguity is not Contiguity.APPEND_ONLY:
            raise ValueError(f"stream {self.name}: missing ids mean something in append_only streams alone")
        return self

    @property
    def direction(self) -> int:
        """1, or -1 where ids in tables count downwards: an id times this is its distance from zero."""
        return -1 if self.sign == "negative" else 1


class StartupSequence(_Declared):
    """What else Synapse holds against a sequence when it starts, beside what a stream whose sequence it is says.

    ``stream_positions``: the name of its positions in that table. ``ids``: by table, the column whose ids it gives out.
    """

    name: Identifier
    stream_positions: str | None = None
    ids: Mapping[Identifier, Identifier]

    @property
    def sequence(self) -> str:
        """Its name, as a stream says it."""
        return self.name

    @property
    def direction(self) -> int:
        """Of its ids, as a stream says it: they are positive."""
        return 1


class Table(_Declared):
    """A table of Synapse's database as bronze holds it: ``bronze.<name>`` with ``columns`` in this order.

    ``primary_key`` is unique in practice; ``key_enforced`` says that Synapse has a unique index that makes sure, and
    ``nullable_key`` names its columns that may be NULL. With ``repeats_keys`` equal rows may legitimately occur more
    than once. ``streams`` maps a stream's name to the column of this table
    that holds its ids; with ``repeats_ids`` several rows may share one. A table that ``follows`` another has no stream
    id of its own: its rows belong to those of the other with the same ``event_id``. ``contiguity``, with a sentence
    why, is given where its rows fare otherwise than the stream says. ``rises_per``: columns per which ids only rise in
    an ``upsert`` table, where these are not the primary key.
    """

    name: Identifier
    description: str
    primary_key: tuple[Identifier, ...]
    key_enforced: bool
    nullable_key: tuple[Identifier, ...] = ()
    repeats_keys: bool = False
    load: LoadMode
    streams: Mapping[Identifier, Identifier]
    repeats_ids: bool = False
    follows: Identifier | None = None
    writer_column: Identifier | None
    contiguity: Contiguity | None = None
    contiguity_why: str = ""
    rises_per: tuple[Identifier, ...] = ()
    columns: tuple[Column, ...]

    @model_validator(mode="after")
    def _names_exist(self) -> "Table":
        known = {column.name for column in self.columns}
        named = {*self.primary_key, *self.rises_per, *self.streams.values(), *filter(None, [self.writer_column])}
        if missing := named - known:
            raise ValueError(f"table {self.name}: not among its columns: {', '.join(sorted(missing))}")
        if len(known) != len(self.columns):
            raise ValueError(f"table {self.name}: a column is listed twice")
        served = {column.name for column in self.columns if column.only_served}
        if self.load is LoadMode.MEASURE and known - served != {
            *self.streams.values(),
            *filter(None, [self.writer_column]),
        }:
            raise ValueError(
                f"table {self.name}: a measured table lists its stream ids and writer column only, or only_served ones"
            )
        if self.load is not LoadMode.MEASURE and served:
            raise ValueError(
                f"table {self.name}: only_served columns are of measured tables, whose rows are not copied"
            )
        if self.load is not LoadMode.MEASURE and not self.primary_key:
            raise ValueError(f"table {self.name}: a copied table needs a primary_key")
        if stray := set(self.nullable_key) - set(self.primary_key):
            raise ValueError(f"table {self.name}: nullable_key is not in its primary_key: {', '.join(sorted(stray))}")
        if self.key_enforced and self.repeats_keys:
            raise ValueError(f"table {self.name}: a key that Synapse enforces cannot repeat")
        if self.load is LoadMode.APPEND and bool(self.streams) is bool(self.follows):
            raise ValueError(f"table {self.name}: an appended table has either streams or a table that it follows")
        if self.load is LoadMode.MERGE and not self.streams:
            raise ValueError(f"table {self.name}: a merged table needs a stream that its rows move along")
        if bool(self.contiguity) is not bool(self.contiguity_why) or (self.contiguity and not self.streams):
            raise ValueError(f"table {self.name}: contiguity is of the ids of a stream, and needs a sentence why")
        return self

    def column(self, name: str) -> Column:
        """The column called ``name``; KeyError if it is not listed."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name}.{name} is not in the catalogue")


def effective_contiguity(stream: Stream, table: Table) -> Contiguity:
    """What becomes of the rows of ``table``, which backs ``stream``."""
    return table.contiguity or stream.contiguity


class Catalogue(_Declared):
    """All streams and tables, and the Synapse schema versions they were checked against."""

    oldest_schema_version: int
    newest_schema_version: int
    streams: tuple[Stream, ...]
    checked_at_start: tuple[StartupSequence, ...] = ()
    tables: tuple[Table, ...]

    @field_validator("streams", "checked_at_start", "tables")
    @classmethod
    def _unique(cls, declared: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [one.name for one in declared]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"declared twice: {', '.join(sorted(twice))}")
        return declared

    @model_validator(mode="after")
    def _streams_exist(self) -> "Catalogue":
        known = {stream.name for stream in self.streams}
        for table in self.tables:
            if missing := set(table.streams) - known:
                raise ValueError(f"table {table.name} names unknown streams: {', '.join(sorted(missing))}")
        if unbacked := known - {name for table in self.tables for name in table.streams}:
            raise ValueError(f"streams without a table: {', '.join(sorted(unbacked))}")
        for table in self.tables:
            for stream in table.streams:
                self._check_rise(table, self.stream(stream))
        appended = {table.name for table in self.tables if table.load is LoadMode.APPEND and table.streams}
        for table in self.tables:
            if table.follows and table.follows not in appended:
                raise ValueError(f"table {table.name} follows {table.follows}, which is not appended by a stream")
        return self

    def _check_rise(self, table: Table, stream: Stream) -> None:
        is_upsert = effective_contiguity(stream, table) is Contiguity.UPSERT and table.load is not LoadMode.MEASURE
        if table.rises_per and not is_upsert:
            raise ValueError(f"table {table.name}: rises_per is of upsert tables")
        if is_upsert and table.streams[stream.name] in (table.rises_per or table.primary_key):
            raise ValueError(f"table {table.name}: ids rise per something else than themselves: say rises_per")

    def table(self, name: str) -> Table:
        """The table called ``name``; KeyError if it is not listed."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(f"bronze.{name} is not in the catalogue")

    def stream(self, name: str) -> Stream:
        """The stream called ``name``; KeyError if it is not listed."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(f"stream {name} is not in the catalogue")

    def copied_tables(self) -> tuple[Table, ...]:
        """Tables that bronze holds rows of."""
        return tuple(table for table in self.tables if table.load is not LoadMode.MEASURE)

    def without_tables(self, tables: Collection[str]) -> "Catalogue":
        """The same without the tables of these names."""
        return self.model_copy(
            update={
                "tables": tuple(table for table in self.tables if table.name not in tables),
                "checked_at_start": tuple(one for one in self.checked_at_start if one.ids.keys().isdisjoint(tables)),
            }
        )

    def measured_tables(self) -> tuple[Table, ...]:
        """Tables that are only counted."""
        return tuple(table for table in self.tables if table.load is LoadMode.MEASURE)

    def stream_table_pairs(self) -> list[tuple[Stream, Table]]:
        """Streams with the tables that back them and that bronze holds rows of."""
        copied = self.copied_tables()
        return [(stream, table) for stream in self.streams for table in copied if stream.name in table.streams]

    def sequence_names(self) -> list[str]:
        """All sequences that are read."""
        return sorted({stream.sequence for stream in self.streams} | {one.name for one in self.checked_at_start})

    def uncatalogued_id_columns(self) -> dict[str, set[str]]:
        """Columns by table of which only the furthest id is read, of tables that bronze does not know."""
        known = {table.name for table in self.tables}
        found: dict[str, set[str]] = {}
        for one in self.checked_at_start:
            for table, column in one.ids.items():
                if table not in known:
                    found.setdefault(table, set()).add(column)
        return found

    def backing_tables(self, stream: str) -> tuple[tuple[Table, str], ...]:
        """Tables that back ``stream``, each with its column of ids."""
        return tuple((table, table.streams[stream]) for table in self.tables if stream in table.streams)


def parse_catalogue(text: str) -> Catalogue:
    """Read the catalogue out of a dbt sources file.

    :raises pydantic.ValidationError: when something is missing, misspelt or contradictory.
    """
    (source,) = yaml.safe_load(text)["sources"]
    meta = source["config"]["meta"]
    return Catalogue(
        oldest_schema_version=meta["schema_version"]["oldest"],
        newest_schema_version=meta["schema_version"]["newest"],
        streams=tuple(Stream(name=name, **declared) for name, declared in meta["streams"].items()),
        checked_at_start=tuple(
            StartupSequence(name=name, **one) for name, one in meta.get("checked_at_start", {}).items()
        ),
        tables=tuple(_table(declared) for declared in source["tables"]),
    )


def _table(declared: dict[str, Any]) -> Table:
    meta = declared["config"]["meta"]
    return Table(
        name=declared["name"],
        description=declared["description"],
        **{"key_enforced": True, "streams": {}, "writer_column": None} | meta,
        columns=tuple(_column(column) for column in declared["columns"]),
    )


def _column(declared: dict[str, Any]) -> Column:
    meta = declared.get("config", {}).get("meta", {})
    return Column(
        name=declared["name"],
        data_type=declared["data_type"],
        description=re.sub(r"\s+", " ", declared["description"]).strip(),
        **{"source_type": POSTGRES_TYPES.get(declared["data_type"])} | meta,
    )


def find_sources_file(name: str = "bronze/_synapse__sources.yml") -> Path:
    """Where a sources file of dbt's models is: in the checkout, or inside the installed package."""
    packaged = Path(str(files("synapse_lakehouse"))) / Path(name).name
    return packaged if packaged.exists() else Path(__file__).parents[2] / "dbt/models" / name


@cache
def load_catalogue() -> Catalogue:
    """The project's catalogue."""
    return parse_catalogue(find_sources_file().read_text(encoding="utf-8"))


@cache
def load_state_tables() -> tuple[Table, ...]:
    """The tables of silver that hold resolved state."""
    (source,) = yaml.safe_load(find_sources_file("silver/_state__sources.yml").read_text(encoding="utf-8"))["sources"]
    return tuple(_table(declared) for declared in source["tables"])
