"""A lake for what is found by examining run after run."""

from collections.abc import Callable, Iterator

import pytest

from synapse_lakehouse.settings import Settings
from tests import examining
from tests.examining import Database, Examined


@pytest.fixture
def examined_lake(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Examined, Database]]:
    with examining.examined_lake(new_lake(), source_copy, monkeypatch) as found:
        yield found
