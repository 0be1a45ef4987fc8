"""The finding of a check."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """Severity of a finding. FAIL: a run or Synapse would stop, or Synapse's database is damaged."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class DoctorFinding:
    """The result of a check of ``subject``, and ``advice`` for an operator."""

    level: FindingLevel
    subject: str
    message: str
    advice: str = ""


Findings = Iterator[DoctorFinding]
