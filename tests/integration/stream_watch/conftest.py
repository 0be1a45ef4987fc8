"""A fixture that samples the streams as the DAG ``stream_watch`` does."""

import json
from collections.abc import Callable

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.stream_watch_tasks import watch_streams
from tests.conftest import lakehouse, use_settings

WRITERS = "events:persister1,persister2 receipts:worker1"
Samples = dict[str, dict[str, object]]


@pytest.fixture
def take_samples(
    source_copy: str, new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Samples]:
    """Return a function that runs the DAG's task, and returns the latest sample of each stream from the command."""
    settings = new_lake(synapse_dsn=source_copy, lakehouse_stream_writers=WRITERS)
    use_settings(settings, monkeypatch)

    def run() -> Samples:
        watch_streams()
        result = lakehouse(settings, "positions", "--history", "--format", "json")
        assert lakehouse(settings, "positions", "--history").stdout.startswith("Latest samples")
        return {row["stream"]: row for row in json.loads(result.stdout)}

    return run
