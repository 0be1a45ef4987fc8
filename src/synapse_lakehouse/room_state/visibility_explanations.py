"""The rules of ``gold.event_visibility`` as questions, in the order of ``synapse.visibility``."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class VisibilityRule:
    """A question about an event. After the answer "no", the next rule applies.

    ``shows``: whether the event is shown if the answer is yes.
    """

    name: str
    question: str
    shows: bool


VISIBILITY_RULES: Final = (
    VisibilityRule("rejected", "Did the event break the room's rules, so that Synapse rejected it?", False),
    VisibilityRule(
        "unreadable", "Is the event's JSON missing, or can Synapse not load it (see gold.events.unloadable)?", False
    ),
    VisibilityRule(
        "redaction_withheld",
        "Is the event a redaction of an event that is not stored, or that it is not allowed to redact?",
        False,
    ),
    VisibilityRule(
        "soft_failed",
        "Was the event soft-failed (not allowed by the room's state at its arrival), and does the user lack the "
        "administrator's option to see such events?",
        False,
    ),
    VisibilityRule(
        "dummy_event", "Is the event a dummy event, which only joins forward extremities of the room's graph?", False
    ),
    VisibilityRule(
        "sender_ignored", "Does the user ignore the event's sender, and is the event not a state event?", False
    ),
    VisibilityRule(
        "room_aliases", "Is the event an old list of aliases (m.room.aliases), which Synapse sends to no client?", False
    ),
    VisibilityRule("retention", "Is the event a message older than the room's retention allows?", False),
    VisibilityRule("own_outlier", "Is the event an outlier that is the user's own membership?", True),
    VisibilityRule("outlier", "Is the event an outlier, so that the state at the event is unknown?", False),
    VisibilityRule("state_unknown", "Is the state after the event missing?", False),
    VisibilityRule("world_readable", "Was the history world-readable, and is the event's sender not erased?", True),
    VisibilityRule(
        "shared",
        "Was the history shared with all members, does the user read as a member (not peeking), and is the event's "
        "sender not erased?",
        True,
    ),
    VisibilityRule("own_leave", "Is the event the user's own leave after a join or an invite?", True),
    VisibilityRule("joined", "Was the user joined?", True),
    VisibilityRule("not_joined", "Was the history visible only to users that were joined at the event?", False),
    VisibilityRule(
        "invited", "Was the history visible only to joined and invited users, and was the user invited?", True
    ),
    VisibilityRule("not_invited", "Was the history visible only to joined and invited users?", False),
    VisibilityRule("peeking", "Was the history visible only to members, and is the user only peeking?", False),
)

_LAST: Final = {
    "call_invite": "Would the event be shown, but is it a call invite in a room that anyone may join? Yes: hidden.",
    "sender_erased": "Would the event be shown, but was its sender erased and the user not joined?"
    " Yes: shown without its content.",
}
"""The last questions, about events that no earlier question hides."""


def explain_rule(rule: str) -> list[str]:
    """Return the question of each rule up to ``rule``, with its answer. The last line also contains the outcome.

    :param rule: the column ``rule`` of ``gold.event_visibility``.
    """
    if rule in _LAST:
        return ["No rule about the event or the user's membership hides the event.", _LAST[rule]]
    names = [candidate.name for candidate in VISIBILITY_RULES]
    *passed, deciding = VISIBILITY_RULES[: names.index(rule) + 1]
    outcome = "shown" if deciding.shows else "hidden"
    return [*(f"{earlier.question} No." for earlier in passed), f"{deciding.question} Yes: {outcome}."]
