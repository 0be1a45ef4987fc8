"""The rules of ``gold.event_visibility`` in words, in the order in which Synapse asks them (``synapse.visibility``)."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class VisibilityRule:
    """A question that decides if the answer is yes; of what a later rule decides, no is true.

    ``shows``: whether the event is shown then.
    """

    name: str
    question: str
    shows: bool


VISIBILITY_RULES: Final = (
    VisibilityRule("rejected", "Did the event break the room's rules, so that Synapse rejected it?", False),
    VisibilityRule("unreadable", "Is its JSON gone, or can Synapse not load it (see gold.events.unloadable)?", False),
    VisibilityRule(
        "redaction_withheld", "Is it a redaction of something that is not here, or that it may not redact?", False
    ),
    VisibilityRule(
        "soft_failed",
        "Did it break the rules of the room as it was when it arrived (soft failure), and did the user not ask, as an"
        " administrator, to be shown such?",
        False,
    ),
    VisibilityRule("dummy_event", "Is it a dummy, which only ties loose ends of the room's graph together?", False),
    VisibilityRule("sender_ignored", "Does the user ignore its sender, and is it no state event?", False),
    VisibilityRule("room_aliases", "Is it an old list of aliases (m.room.aliases), which no client is sent?", False),
    VisibilityRule("retention", "Is it a message older than the room's retention allows?", False),
    VisibilityRule("own_outlier", "Is it outside the room's graph, but the user's own membership?", True),
    VisibilityRule("outlier", "Is it outside the room's graph, so that the state at it is not known?", False),
    VisibilityRule("state_unknown", "Is the state after it missing?", False),
    VisibilityRule(
        "world_readable", "Could everybody read the room's history then, and is its sender not erased?", True
    ),
    VisibilityRule(
        "shared",
        "Was the history shared with all members, does the user read as one (not peeking), and is its sender not"
        " erased?",
        True,
    ),
    VisibilityRule("own_leave", "Is it the user's own leave after a join or an invite?", True),
    VisibilityRule("joined", "Was the user joined?", True),
    VisibilityRule("not_joined", "Was the history for members who were joined then only?", False),
    VisibilityRule("invited", "Was the history for the joined and the invited only, and was the user invited?", True),
    VisibilityRule("not_invited", "Was the history for the joined and the invited only?", False),
    VisibilityRule("peeking", "Was the history for members only, and does the user only peek in?", False),
)

_LAST: Final = {
    "call_invite": "Would it be shown, but is it a call invite in a room that everybody may join? Yes: hidden.",
    "sender_erased": "Would it be shown, but was its sender erased and the user not joined?"
    " Yes: shown without its content.",
}
"""Asked of what all questions before would show."""


def explain_rule(rule: str) -> list[str]:
    """The questions up to the one that decided, each with its answer, and what came of it.

    :param rule: ``rule`` of ``gold.event_visibility``.
    """
    if rule in _LAST:
        return ["It passed all questions about the event and the user's membership.", _LAST[rule]]
    names = [one.name for one in VISIBILITY_RULES]
    *no, yes = VISIBILITY_RULES[: names.index(rule) + 1]
    return [*(f"{one.question} No." for one in no), f"{yes.question} Yes: {'shown' if yes.shows else 'hidden'}."]
