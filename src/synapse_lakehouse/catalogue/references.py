"""References between Synapse's tables: values of one column that must also be in a column of another table."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from synapse_lakehouse.catalogue.base_declaration import Declaration, Identifier

QualifiedColumn = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*$")]


class LegalCase(Declaration):
    """A case in which a missing target is legal, by Synapse's code. ``why``: the reason.

    * ``found_in``: the value is in this column of another table.
    * ``event``: condition on the row's own event.
    """

    found_in: QualifiedColumn | None = None
    event: Literal["outlier", "rejected", "redacts_nothing"] | None = None
    why: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _check_kind(self) -> "LegalCase":
        if (self.found_in is None) is (self.event is None):
            raise ValueError("a legal case needs either found_in or event")
        return self


class Reference(Declaration):
    """A reference from ``column`` of a table to the column ``to`` of another table.

    * ``rows``: SQL condition on the table's columns; only these rows need a target.
    * ``check``: the check of ``gold.state_integrity`` that finds a missing target; ``severity``: the severity of the
      finding.
    * ``missing``: what a missing target means.
    * ``legal``: the cases in which the target may be missing.
    * ``equal``: by column of this table, the column of the target that must have the same value. Either value may be
      NULL.
    """

    column: Identifier
    to: QualifiedColumn
    rows: str = "true"
    check: Identifier
    severity: Literal["fail", "warn", "info"]
    missing: Annotated[str, Field(min_length=1)]
    legal: tuple[LegalCase, ...] = ()
    equal: Mapping[Identifier, Identifier] = {}

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of other tables that the reference names, each with its table."""
        table = self.to.partition(".")[0]
        copied = (f"{table}.{column}" for column in self.equal.values())
        return (self.to, *copied, *(case.found_in for case in self.legal if case.found_in))
