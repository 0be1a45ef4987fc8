"""Distribute the tests to pytest-xdist's worker processes, and order them.

The scheduling process does not collect the tests, so it searches their source for the fixtures that they use. Each
worker process that creates a lake takes two to four minutes longer. The groups of pytest-xdist 3.8 have no effect under
pytest 9.
"""

from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from synapse_lakehouse.config.settings import PROJECT_FOLDER

LAKES: Final = {"visibility_lake": "visibility_lake: VisibilityLake", "published": "published: PublishedLake"}
"""Fixture of a lake whose creation takes minutes → text in the source of each test that uses it."""

LAST: Final = "published"
"""The lake whose tests would end last."""

_LONGEST: Final = ("test_kills.py", "test_federated_answers.py")

_START_SERVERS: Final = frozenset(
    {"integration", "spark", "dbt", "visibility", "replication", "compression", "contract"}
)


class LakeScheduling(LoadScopeScheduling):
    """Run all tests of a file in the same process, and all files that use the same lake in the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return lake(PROJECT_FOLDER / file) or file


@cache
def lake(file: Path) -> str | None:
    """Return the shared lake that tests of ``file`` use, if any."""
    source = file.read_text()
    return next((name for name, parameter in LAKES.items() if parameter in source), None)


def length(file: Path) -> int:
    """Return a sort key: the longest tests, those of a shared lake, those that start servers, the others."""
    if file.name in _LONGEST:
        return -1
    if name := lake(file):
        return list(LAKES).index(name)
    return len(LAKES) + _START_SERVERS.isdisjoint(file.parts)
