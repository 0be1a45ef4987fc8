"""A check of ``gold.state_integrity``, and the harm of its findings. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Harm(StrEnum):
    """The harm of a check's findings, the worst first."""

    LOST = "data is being lost"
    WRONG = "answers are wrong"
    UNTIDY = "the database is untidy"


@dataclass(frozen=True)
class IntegrityCheck:
    """A check. ``title``: its findings, in the plural. ``means``: their consequence. ``advice``: the remedy.

    ``follows``: checks whose findings cause findings of this check in the same room, or in the same index. Each of
    these checks has the same harm or a worse one, because a finding with a cause has no alert of its own.
    """

    name: str
    title: str
    means: str
    advice: str
    harm: Harm = Harm.WRONG
    follows: tuple[str, ...] = ()


REBUILD_INDEX: Final = (
    "Stop Synapse. Run no statement that deletes rows by this index. `lakehouse doctor --deep --indexes TABLE` reads "
    "the whole index. Then run REINDEX TABLE, and restore lost rows: `lakehouse state restore-plan`."
)
"""The remedy for a damaged index."""

INDEX_CAUSES: Final = ("index_foreign_entry", "index_missing_entry")
"""With an index that has such findings, Synapse deletes rows of other state groups, or stores a state without the rows
that it did not find."""
