"""Settings of the state compressor."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.level_sizes import parse_levels
from synapse_lakehouse.compressor.settings import CompressorSettings, load_compressor_settings
from synapse_lakehouse.config.homeserver_yaml import parse_duration
from synapse_lakehouse.config.settings import Settings

DAY = 24 * 60 * 60 * 1000


def test_the_documented_defaults_are_the_defaults() -> None:
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
def test_durations_have_the_format_of_synapse(text: object, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "section",
    [
        {"chunk_size": 0}, {"number_of_rooms": -1}, {"default_levels": "100,x"}, {"time_between_runs": "soon"},
        {"time_between_runs": 0}, {"time_between_runs": True}, {"max_chain": 0}, {"strategy": "worst"}, {"chunks": 5},
        {"time_between_runs": "9999999y"}, {"max_chain": True}, {"default_levels": "100,99999999999999999999"},
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CompressorSettings(**section)


def test_the_environment_has_precedence_over_the_file(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "enabled: true\nchunk_size: 50\ndefault_levels: 10,5", chunk_size="70")
    actual = load_compressor_settings(settings.model_copy(update={"lakehouse_compressor_strategy": "best"}))
    assert (actual.enabled, actual.chunk_size, actual.default_levels) == (True, 70, parse_levels("10,5"))
    assert (actual.strategy, actual.time_between_runs) == (Strategy.BEST, DAY)


@pytest.mark.parametrize("rooms", ["!a:x !b:x", '["!a:x", "!b:x"]'])
def test_rooms_are_a_list_or_a_text(tmp_path: Path, rooms: str) -> None:
    assert load_compressor_settings(settings_with(tmp_path, "rooms: ['!a:x', '!b:x']")).rooms == ("!a:x", "!b:x")
    assert load_compressor_settings(settings_with(tmp_path, "rooms: ['!c:x']", rooms=rooms)).rooms == (
        "!a:x",
        "!b:x",
    )


@pytest.mark.parametrize("text", ["", "# nothing is set", "enabled:"])
def test_an_empty_section_has_no_effect(tmp_path: Path, text: str) -> None:
    assert load_compressor_settings(settings_with(tmp_path, text)) == CompressorSettings()


def test_without_a_homeserver_yaml_the_compressor_is_off() -> None:
    assert load_compressor_settings(Settings(_env_file=None)) == CompressorSettings()


@pytest.mark.parametrize(
    ("section", "environment", "reason"),
    [
        ("chunk_size: many", {}, "state_compressor.chunk_size in SYNAPSE_CONFIG is 'many'"),
        ("default_levels: 100,0", {}, "positive whole numbers"),
        ("chunks: 5", {}, "state_compressor.chunks in SYNAPSE_CONFIG"),
        ("", {"rooms": "[1, 2"}, "LAKEHOUSE_COMPRESSOR_ROOMS is"),
        ("", {"time_between_runs": "soon"}, "LAKEHOUSE_COMPRESSOR_TIME_BETWEEN_RUNS is 'soon'"),
    ],
)
def test_invalid_values_are_named_with_their_source(
    tmp_path: Path, section: str, environment: dict[str, str], reason: str
) -> None:
    with pytest.raises(CompressorError, match=reason):
        load_compressor_settings(settings_with(tmp_path, section, **environment))


@pytest.mark.parametrize("text", ["state_compressor: true", "a: [", "\x00"])
def test_an_invalid_homeserver_yaml_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "homeserver.yaml"
    path.write_text(text)
    with pytest.raises(CompressorError, match="SYNAPSE_CONFIG"):
        load_compressor_settings(Settings(_env_file=None, synapse_config=path))


def settings_with(folder: Path, section: str, **environment: str) -> Settings:
    """Return settings with a homeserver.yaml that has ``section``, and with ``environment`` as variables."""
    path = folder / "homeserver.yaml"
    path.write_text(
        "server_name: example.org\nstate_compressor:\n" + "".join(f"  {line}\n" for line in section.split("\n"))
    )
    overrides: dict[str, Any] = {f"lakehouse_compressor_{name}": value for name, value in environment.items()}
    return Settings(_env_file=None, synapse_config=path, **overrides)
