"""Look at the streams as the DAG ``stream_watch`` does."""

import json
from collections.abc import Callable

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.stream_watch_tasks import watch_streams
from tests.conftest import lakehouse, use_settings

WRITERS = "events:persister1,persister2 receipts:worker1"
Looks = dict[str, dict[str, object]]


@pytest.fixture
def looked(source_copy: str, new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> Callable[[], Looks]:
    """Looks at the streams as the DAG's task does; the latest look at each stream as the command shows it."""
    settings = new_lake(synapse_dsn=source_copy, lakehouse_stream_writers=WRITERS)
    use_settings(settings, monkeypatch)

    def look() -> Looks:
        watch_streams()
        reported = lakehouse(settings, "positions", "--history", "--format", "json")
        assert lakehouse(settings, "positions", "--history").stdout.startswith("Latest samples")
        return {row["stream"]: row for row in json.loads(reported.stdout)}

    return look
