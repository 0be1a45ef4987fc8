"""What prove-erased concludes from what it found."""

from datetime import UTC, datetime

import pytest

from synapse_lakehouse.cli.prove_erased import verdict
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.lake.remains import Content, State

MOMENT = datetime(2026, 11, 18, tzinfo=UTC)
RELEASE = Release(
    number=7, run_id="", interval_start=MOMENT, interval_end=MOMENT, branch="", tag="", server_name="", tables={},
    positions={}, views={}, checks_passed=0, checks_warned=0, published_at=MOMENT,
)  # fmt: skip
USER = "@erin:synapse.example"


def content(state: State, events: int) -> Content:
    return Content("bronze.event_json", state, events, ("a.parquet",))


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([], 0, "Proven: no Parquet file"),
        ([content(State.IN_SOURCE, 3)], 3, "3 messages of @erin:synapse.example are in the lake because"),
        ([content(State.REPLACED, 2)], 1, "content of 2 messages of @erin:synapse.example and of 0 purged events"),
        ([content(State.PURGED, 5), content(State.IN_SOURCE, 3)], 1, "and of 5 purged events"),
    ],
)
def test_the_verdict_tells_what_the_lake_keeps_from_what_synapse_has(
    found: list[Content], code: int, said: str
) -> None:
    text, exit_code = verdict(USER, RELEASE, found)
    assert exit_code == code
    assert said in text
