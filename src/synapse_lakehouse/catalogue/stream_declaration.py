"""Synapse's streams, and the sequences that Synapse checks when it starts."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from synapse_lakehouse.catalogue.base_declaration import Declaration, Identifier


class Contiguity(StrEnum):
    """The permitted changes of a stream's rows below the safe bound. They decide whether a missing ID is a fault."""

    APPEND_ONLY = "append_only"
    """Rows stay unless their event or room is purged. A missing ID never gets a row later. A lost row is a fault."""
    UPSERT = "upsert"
    """A row moves to a higher ID when its key is written again. A key's ID only increases. Missing IDs are normal."""
    PRUNED = "pruned"
    """Rows are deleted from the lowest ID upwards."""
    TRANSIENT = "transient"
    """A row is deleted when it is acknowledged or expires."""
    UNCHECKED = "unchecked"
    """No known rule can be checked."""


class Stream(Declaration):
    """One of Synapse's streams (``synapse.replication.tcp.streams``).

    * ``stream_positions``: the stream's name in the table ``stream_positions``; None if Synapse stores no position.
    * ``writers``: the key in ``stream_writers`` of homeserver.yaml, or ``master`` (fixed in Synapse), or ``any``.
    * ``sign``: sign of the IDs in tables; ``positive`` unless declared.
    * ``unique_ids``: each table of the stream without ``repeats_ids`` has one row per ID; a second row is a duplicate.
      True unless declared.
    * ``gap_budget``: percentage of newly closed IDs that may lack a row without an alert; None: no limit.
    * ``why``: the reason for the checks, in one sentence.
    """

    name: Identifier
    description: str
    stream_positions: str | None
    sequence: str
    writers: str
    sign: Literal["positive", "negative"] = "positive"
    unique_ids: bool = True
    contiguity: Contiguity
    gap_budget: Annotated[int, Field(ge=1, le=100)] | None = None
    why: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _check_bound(self) -> "Stream":
        if self.contiguity is Contiguity.APPEND_ONLY and not self.stream_positions:
            raise ValueError(f"stream {self.name}: append_only requires stream_positions")
        if self.gap_budget and self.contiguity is not Contiguity.APPEND_ONLY:
            raise ValueError(f"stream {self.name}: gap_budget is allowed only in append_only streams")
        return self

    @property
    def immutable_below_bound(self) -> bool:
        """Whether a safe bound excludes new IDs at or below it. Without stored positions, no bound is safe."""
        return self.stream_positions is not None

    @property
    def direction(self) -> int:
        """1, or -1 if IDs in tables count downwards. An ID multiplied by this number is its distance from zero."""
        return -1 if self.sign == "negative" else 1


class StartupSequence(Declaration):
    """A sequence that Synapse checks when it starts, in addition to the sequences of streams.

    * ``stream_positions``: the stream name of its positions in the table ``stream_positions``.
    * ``ids``: by table, the column with the sequence's IDs.
    """

    name: Identifier
    stream_positions: str | None = None
    ids: Mapping[Identifier, Identifier]

    @property
    def sequence(self) -> str:
        """The name of the sequence, like :attr:`Stream.sequence`."""
        return self.name

    @property
    def direction(self) -> int:
        """1, because the IDs are positive; see :attr:`Stream.direction`."""
        return 1
