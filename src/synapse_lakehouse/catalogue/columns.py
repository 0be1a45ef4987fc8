"""Columns of the catalogue, and the projections that cut their values before they leave Synapse's database."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from synapse_lakehouse.catalogue.declaration import Declaration, Identifier

POSTGRES_TYPES = {
    "string": "text",
    "bigint": "bigint",
    "int": "integer",
    "boolean": "boolean",
    "double": "double precision",
}


class JsonKeysProjection(Declaration):
    """Reduce a JSON text column to an object with the listed top-level keys (absent keys stay absent)."""

    kind: Literal["json_keys"]
    source: Identifier
    keys: tuple[str, ...]


class JsonKeysForTypeProjection(Declaration):
    """As :class:`JsonKeysProjection` in rows whose ``type_column`` equals ``type``; NULL in all other rows."""

    kind: Literal["json_keys_of_type"]
    source: Identifier
    type_column: Identifier
    type: str
    keys: tuple[str, ...]


class DayProjection(Declaration):
    """Round a time in milliseconds since the epoch down to its UTC day."""

    MILLISECONDS: ClassVar[int] = 86_400_000

    kind: Literal["day"]
    source: Identifier


class ListForTypeProjection(Declaration):
    """Keep a list in rows whose ``type_column`` is one of ``types``; in all other rows, a list of as many NULLs."""

    kind: Literal["list_of_type"]
    source: Identifier
    type_column: Identifier
    types: tuple[str, ...]


Projection = Annotated[
    JsonKeysProjection | JsonKeysForTypeProjection | ListForTypeProjection | DayProjection, Field(discriminator="kind")
]


class Column(Declaration):
    """A column that may be read from Synapse's database.

    * ``source_type``: PostgreSQL's name of the type, where it is not the usual one for ``data_type``.
    * ``holds_content``: the column contains user content, so no copy of it may remain in metadata.
    * ``changes``: Synapse may update the column in an existing row of a table whose rows are otherwise immutable.
    * ``only_served``: the column is read for replication clients and never copied; a run needs no right to read it.
    * ``has_secrets``: the source column also contains values that give access to accounts. ``lakehouse grants`` grants
      it only on request.
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
        """Names of the columns of Synapse's table from which the value is computed."""
        if self.projection is None:
            return (self.name,)
        if isinstance(self.projection, JsonKeysForTypeProjection | ListForTypeProjection):
            return (self.projection.source, self.projection.type_column)
        return (self.projection.source,)
