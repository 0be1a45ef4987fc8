"""Changes of Synapse's schema that add or remove tables and columns of the catalogue."""

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from synapse_lakehouse.catalogue.base_declaration import Declaration


class SchemaChange(Declaration):
    """A change of Synapse's schema.

    ``release``: first release of Synapse with the change. ``delta``: the change's file in ``applied_schema_deltas``.
    """

    release: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
    delta: Annotated[str, Field(pattern=r"^[0-9]+/[^/]+$")]


class Evolving(Declaration):
    """A table or a column that some supported releases of Synapse lack.

    * ``since``: the schema change that added it; ``until``: the schema change that removed it.
    * ``instead``: the place of the information in releases without the table or column; empty if there is none.
    """

    since: SchemaChange | None = None
    until: SchemaChange | None = None
    instead: str = ""

    @property
    def is_evolving(self) -> bool:
        """Whether some supported releases of Synapse lack the table or column."""
        return bool(self.since or self.until)

    def may_be_absent(self, deltas: Collection[str]) -> bool:
        """Return whether a database may lack the table or column, given the schema changes ``deltas`` applied to it."""
        is_early = self.since is not None and self.since.delta not in deltas
        return is_early or (self.until is not None and self.until.delta in deltas)
