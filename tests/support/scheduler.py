"""How processes share the tests.

The process that schedules does not collect the tests, so it finds the fixtures in their source. A process that makes a
lake of its own adds two to four minutes. Groups of pytest-xdist 3.8 have no effect under pytest 9.
"""

from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from synapse_lakehouse.config.settings import PROJECT_FOLDER

LAKES: Final = {"harsh": "harsh: HarshLake", "published": "published: Published"}
"""Lakes that many tests share and whose creation takes minutes, with the text of a test that uses one."""

LAST: Final = "published"
"""The lake whose tests would be the last to be done."""

_LONGEST: Final = ("test_kills.py", "test_federated_answers.py")

_START_SERVERS: Final = frozenset(
    {"integration", "spark", "dbt", "visibility", "replication", "compression", "contract"}
)


class Sharing(LoadScopeScheduling):
    """A file stays with one process, and so do all files that use the same lake."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return lake(PROJECT_FOLDER / file) or file


@cache
def lake(file: Path) -> str | None:
    """The shared lake that tests of ``file`` use."""
    text = file.read_text()
    return next((name for name, used in LAKES.items() if used in text), None)


def length(file: Path) -> int:
    """How tests are put in order: the longest, those of a shared lake, those that start servers, the others."""
    if file.name in _LONGEST:
        return -1
    if used := lake(file):
        return list(LAKES).index(used)
    return len(LAKES) + _START_SERVERS.isdisjoint(file.parts)
