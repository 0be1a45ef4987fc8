"""Changes of Synapse's schema that add or remove tables and columns of the catalogue."""

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from synapse_lakehouse.catalogue.base_declaration import Declaration


class SchemaChange(Declaration):
    """A schema change of Synapse. ``release``: the first with it. ``delta``: its file in ``applied_schema_deltas``."""

    release: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
    delta: Annotated[str, Field(pattern=r"^[0-9]+/[^/]+$")]


class Evolving(Declaration):
    """A table or a column that some supported releases of Synapse lack.

    * ``since``: the schema change that added it; ``until``: the schema change that removed it.
    * ``instead``: what has its information in the other releases; empty if nothing has it.
    """

    since: SchemaChange | None = None
    until: SchemaChange | None = None
    instead: str = ""

    @property
    def is_evolving(self) -> bool:
        """Whether some supported releases of Synapse lack it."""
        return bool(self.since or self.until)

    def may_be_absent(self, deltas: Collection[str]) -> bool:
        """Return whether a database with these applied deltas has it not yet, or no longer."""
        is_early = self.since is not None and self.since.delta not in deltas
        return is_early or (self.until is not None and self.until.delta in deltas)
