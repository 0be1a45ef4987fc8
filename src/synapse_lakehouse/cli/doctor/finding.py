"""What an examination says."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """How bad a finding is: FAIL stops a run, or Synapse, or is damage in its database."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class DoctorFinding:
    """What an examination found about ``subject``; ``advice`` says what to do about it."""

    level: FindingLevel
    subject: str
    message: str
    advice: str = ""


Findings = Iterator[DoctorFinding]
