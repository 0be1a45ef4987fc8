"""A lake for what is found by examining run after run."""

from collections.abc import Callable, Iterator

import pytest

from synapse_lakehouse.config.settings import Settings
from tests.support import stream_lake
from tests.support.stream_lake import Database, Examined


@pytest.fixture
def examined_lake(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Examined, Database]]:
    with stream_lake.examined_lake(new_lake(), source_copy, monkeypatch) as found:
        yield found
