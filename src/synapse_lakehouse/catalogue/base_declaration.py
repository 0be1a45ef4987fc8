"""Base class of all declarations in the catalogue."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Identifier = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]


class Declaration(BaseModel):
    """An immutable declaration. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
