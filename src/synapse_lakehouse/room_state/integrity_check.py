"""A check of ``gold.state_integrity``, and the harm of its findings. Pure."""

from dataclasses import dataclass
from enum import StrEnum


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
