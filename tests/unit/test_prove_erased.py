"""What prove-erased concludes from what it found."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse_lakehouse.cli.prove_erased import verdict
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.lake.remains import Content, State
from synapse_lakehouse.lake.warehouse import Unreadable

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
        ([content(State.LEFT_BEHIND, 4)], 3, "Of 4 events, of anyone, Synapse's database has reactions and no JSON"),
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


def test_what_cannot_be_read_is_no_proof_whatever_else_was_found() -> None:
    half = [Unreadable("bronze.events", (Path("half.parquet"), Path("other.parquet")))]
    for found in ([], [content(State.IN_SOURCE, 3)]):
        text, exit_code = verdict(USER, RELEASE, found, half)
        assert exit_code == 1
        assert "Not proven: 2 files" in text
        assert "Proven: no" not in text
