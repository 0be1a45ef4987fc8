"""Messages about incidents. Pure.

Text from a database is escaped, so that sinks do not show parts of it as mentions, links or markup.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.alerts.incidents import WARNING_KINDS, IncidentEvent, IncidentKind
from synapse_lakehouse.printable_text import to_chat_text, to_printable, to_printable_message

MAX_SINGLE_MESSAGES: Final = 5
"""If more incidents begin or end at once, one message describes all of them."""

_NAMED: Final = 20
_HARMFUL_KINDS: Final = (IncidentKind.DATA_LOSS, IncidentKind.LOST_IDS, IncidentKind.WRONG_ANSWERS)


@dataclass(frozen=True)
class AlertMessage:
    """A message about ``events``: incidents that began or ended."""

    title: str
    body: str
    is_resolution: bool
    is_warning: bool
    events: tuple[IncidentEvent, ...]


def name_homeserver(name: str | None, server_name: str | None) -> str:
    """Return the homeserver's name for titles, such as ``test (example.org)`` or ``example.org``.

    ``name`` is from LAKEHOUSE_HOMESERVERS. Several homeservers, for example a test server, may have one
    ``server_name``.
    """
    return f"{name} ({server_name})" if name and name != server_name else str(server_name)


def build_messages(events: Sequence[IncidentEvent], homeserver: str, runbooks: str) -> list[AlertMessage]:
    """Return one message for each beginning or end of an incident, in the order of harm, beginnings first.

    If there are more than :data:`MAX_SINGLE_MESSAGES`, return one message for all.

    :param homeserver: see :func:`name_homeserver`.
    :param runbooks: URL or folder of the runbooks, without a trailing slash.
    """
    events = sorted(events, key=lambda event: (not event.begins, *_harm(event)))
    if len(events) > MAX_SINGLE_MESSAGES:
        return [_build_combined(events, homeserver, runbooks)]
    return [_build_single(event, homeserver, runbooks) for event in events]


def _build_single(event: IncidentEvent, homeserver: str, runbooks: str) -> AlertMessage:
    facts = [to_chat_text(to_printable_message(fact)) for fact in (event.text, event.consequence) if fact]
    details = [
        f"detected at {event.at:%Y-%m-%d %H:%M} UTC" if event.begins else f"ended at {event.at:%Y-%m-%d %H:%M} UTC"
    ]
    details += [f"What to do: {runbooks}/{event.kind}.md"] if event.begins else []
    details += [f"More: {event.page}"] if event.page else []
    return AlertMessage(
        title=f"{homeserver}: {_headline(event)}",
        body="\n".join([*facts, *details]),
        is_resolution=not event.begins,
        is_warning=event.kind in WARNING_KINDS,
        events=(event,),
    )


def _build_combined(events: Sequence[IncidentEvent], homeserver: str, runbooks: str) -> AlertMessage:
    counts, moments = Counter((event.kind, event.begins) for event in events), [event.at for event in events]
    lines = [
        f"{_title(kind)}{'' if begins else ', ended'}: {count} ({runbooks}/{kind}.md)"
        for (kind, begins), count in counts.items()
    ]
    lines += [f"- {_headline(event)}: {to_chat_text(_first_line(event.text))}" for event in events[:_NAMED]]
    lines += [f"- and {len(events) - _NAMED} more: see audit.incidents"] if len(events) > _NAMED else []
    first, last = (f"{time:%Y-%m-%d %H:%M} UTC" for time in (min(moments), max(moments)))
    lines += [f"at {first}" if first == last else f"from {first} to {last}"]
    lines += _distinct(to_chat_text(event.consequence) for event in events)
    lines += [f"More: {page}" for page in _distinct(event.page for event in events)]
    return AlertMessage(
        title=f"{homeserver}: {len(events)} incidents began or ended at once",
        body="\n".join(lines),
        is_resolution=not any(event.begins for event in events),
        is_warning=all(event.kind in WARNING_KINDS for event in events),
        events=tuple(events),
    )


def _harm(event: IncidentEvent) -> tuple[bool, bool, bool]:
    """Sort key: loss of data, other errors, wrong answers, other warnings, an untidy database."""
    return event.kind in WARNING_KINDS, event.kind not in _HARMFUL_KINDS, event.kind == IncidentKind.INTEGRITY


def _headline(event: IncidentEvent) -> str:
    return f"{_title(event.kind)}: {to_chat_text(to_printable(event.subject))}{'' if event.begins else ' — ended'}"


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return ``texts`` without empty and repeated texts."""
    return list(dict.fromkeys(filter(None, texts)))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _title(kind: str) -> str:
    return kind.replace("-", " ")
