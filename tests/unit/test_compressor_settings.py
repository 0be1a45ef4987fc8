"""Settings of the state compressor."""

import pytest
import yaml
from pydantic import ValidationError

from synapse_lakehouse.compression.levels import parse_levels
from synapse_lakehouse.compression.settings import CompressorSettings, milliseconds

DAY = 24 * 60 * 60 * 1000


def test_the_documents_example_says_what_the_defaults_are() -> None:
    section = yaml.safe_load("""
        enabled: true
        chunk_size: 500
        number_of_rooms: 5
        default_levels: 100,50,25
        time_between_runs: 1d
    """)
    assert CompressorSettings(**section) == CompressorSettings(enabled=True)
    defaults = CompressorSettings()
    assert (defaults.enabled, defaults.chunk_size, defaults.number_of_rooms) == (False, 500, 5)
    assert (defaults.default_levels, defaults.time_between_runs) == (parse_levels("100,50,25"), DAY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1d", DAY), ("12h", DAY // 2), ("2w", 14 * DAY), ("1y", 365 * DAY), ("90s", 90_000), ("5m", 300_000), (60, 60)],
)
def test_durations_are_synapses(text: object, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "section",
    [
        {"chunk_size": 0}, {"number_of_rooms": -1}, {"default_levels": "100,x"}, {"time_between_runs": "soon"},
        {"time_between_runs": 0}, {"time_between_runs": True}, {"max_chain": 0}, {"strategy": "worst"}, {"chunks": 5},
    ],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CompressorSettings(**section)
