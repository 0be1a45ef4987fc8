"""The kind of alert of each check of Synapse's database. Pure."""

from typing import Final

from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.room_state.integrity_check import Harm, IntegrityCheck

_KINDS_OF_HARM: Final = {
    Harm.LOST: IncidentKind.DATA_LOSS,
    Harm.WRONG: IncidentKind.WRONG_ANSWERS,
    Harm.UNTIDY: IncidentKind.INTEGRITY,
}


def kind_of_check(check: IntegrityCheck) -> IncidentKind:
    """Return the kind of alert of a check of Synapse's database."""
    return IncidentKind.LOST_IDS if check.name == "event_lost" else _KINDS_OF_HARM[check.harm]
