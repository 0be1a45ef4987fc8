"""Columns of the catalogue, and the projections that reduce their values before they leave Synapse's database."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from synapse_lakehouse.catalogue.base_declaration import Declaration, Identifier
from synapse_lakehouse.catalogue.synapse_schema_change import Evolving

POSTGRES_TYPES = {
    "string": "text",
    "bigint": "bigint",
    "int": "integer",
    "boolean": "boolean",
    "double": "double precision",
}


class JsonKeysProjection(Declaration):
    """Reduce JSON text to an object with only the listed top-level keys. Absent keys stay absent."""

    kind: Literal["json_keys"]
    source: Identifier
    keys: tuple[str, ...]


class JsonKeysForTypeProjection(Declaration):
    """Like :class:`JsonKeysProjection` in rows whose ``type_column`` equals ``type``; NULL in all other rows."""

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


class DigestProjection(Declaration):
    """Replace a text by its SHA-256 in hexadecimal digits, which shows changes of the text but not the text."""

    kind: Literal["digest"]
    source: Identifier


class ListForTypeProjection(Declaration):
    """Keep a list in rows whose ``type_column`` is in ``types``. In other rows, all elements become NULL."""

    kind: Literal["list_of_type"]
    source: Identifier
    type_column: Identifier
    types: tuple[str, ...]


class AbsentProjection(Declaration):
    """A constant, in place of a column that the database lacks."""

    kind: Literal["absent"] = "absent"
    value: bool | None


Projection = Annotated[
    JsonKeysProjection
    | JsonKeysForTypeProjection
    | ListForTypeProjection
    | DayProjection
    | DigestProjection
    | AbsentProjection,
    Field(discriminator="kind"),
]


class Column(Evolving):
    """A column that may be read from Synapse's database.

    * ``source_type``: PostgreSQL's name of the type, if it is not the usual type for ``data_type``.
    * ``holds_content``: the column contains user content, so no copy of its values may remain in metadata.
    * ``changes``: Synapse may update the column in an existing row of a table whose rows are otherwise immutable.
    * ``only_served``: the column is read for replication clients, never copied. A run needs no right to read it.
    * ``has_secrets``: the source column also contains credentials. ``lakehouse grants`` includes it only on request.
    * ``absent_value``: the column's value in the lake if the database lacks the column.
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
    absent_value: bool | None = None

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Names of the columns of Synapse's table from which the value is computed."""
        if self.projection is None:
            return (self.name,)
        if isinstance(self.projection, AbsentProjection):
            return ()
        if isinstance(self.projection, JsonKeysForTypeProjection | ListForTypeProjection):
            return (self.projection.source, self.projection.type_column)
        return (self.projection.source,)

    def as_absent(self) -> "Column":
        """Return the column with a constant value, for a database that lacks the column."""
        return self.model_copy(update={"projection": AbsentProjection(value=self.absent_value)})
