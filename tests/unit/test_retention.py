"""Retention of messages, from homeserver.yaml or from the operator's settings."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.config.homeserver_yaml import DAY_MILLISECONDS
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.room_state.retention import Retention, RetentionError, read_retention


def _settings(folder: Path, config: str | None = None, **overrides: Any) -> Settings:
    path = None
    if config is not None:
        path = folder / "homeserver.yaml"
        path.write_text(config)
    return Settings(_env_file=None, synapse_config=path, **overrides)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, Retention(False, None)),
        ("server_name: here", Retention(False, None)),
        ("retention:", Retention(False, None)),
        ("retention: {enabled: true}", Retention(True, None)),
        ("retention: {enabled: true, default_policy: {min_lifetime: 1d}}", Retention(True, None)),
        ("retention: {enabled: true, default_policy: {max_lifetime: 1w}}", Retention(True, 7 * DAY_MILLISECONDS)),
        ("retention: {enabled: true, default_policy: {max_lifetime: 5000}}", Retention(True, 5000)),
        ("retention: {enabled: true, default_policy: {max_lifetime: 0}}", Retention(True, 0)),
        ("retention: {default_policy: {max_lifetime: 1y}}", Retention(False, 365 * DAY_MILLISECONDS)),
        ("retention: {allowed_lifetime_min: 3d, purge_jobs: []}", Retention(False, None, 3 * DAY_MILLISECONDS)),
        ("retention: {purge_jobs: [{interval: 12h}, {interval: 2d}]}", Retention(False, None, 0, 2 * DAY_MILLISECONDS)),
    ],
)
def test_homeserver_yaml_is_read(tmp_path: Path, config: str | None, expected: Retention) -> None:
    assert read_retention(_settings(tmp_path, config)) == expected


def test_durations_fit_into_the_tables(tmp_path: Path) -> None:
    huge_number = "9" * 50
    config = f"default_policy: {{max_lifetime: {huge_number}}}, allowed_lifetime_min: {huge_number}"
    config = f"retention: {{{config}, purge_jobs: [{{interval: {huge_number}y}}]}}"
    retention = read_retention(_settings(tmp_path, config))
    variables = retention.variables(datetime(2026, 11, 17, tzinfo=UTC))
    assert variables["retention_max_lifetime"] == variables["retention_least_lifetime"] == 2**63 - 1
    assert variables["retention_purge_delay"] == 2**63 - 1 + DAY_MILLISECONDS


def test_settings_override_homeserver_yaml(tmp_path: Path) -> None:
    config = "retention: {enabled: true, default_policy: {max_lifetime: 1w}}"
    overrides = {"lakehouse_retention_enabled": False, "lakehouse_retention_max_lifetime": "2d"}
    assert read_retention(_settings(tmp_path, config, **overrides)) == Retention(False, 2 * DAY_MILLISECONDS)


@pytest.mark.parametrize(
    "config",
    [
        "retention: yes please",
        "retention: {default_policy: 1w}",
        "retention: {default_policy: {max_lifetime: a week}}",
        "retention: {purge_jobs: daily}",
        "retention: {purge_jobs: [daily]}",
    ],
)
def test_an_invalid_retention_is_refused(tmp_path: Path, config: str) -> None:
    with pytest.raises(RetentionError):
        read_retention(_settings(tmp_path, config))


def test_models_get_milliseconds() -> None:
    variables = Retention(True, 5).variables(datetime(2026, 11, 18, tzinfo=UTC))
    assert variables == {
        "retention_enabled": True, "retention_max_lifetime": 5, "as_of": 1794960000000,
        "retention_least_lifetime": 0, "retention_purge_delay": 2 * DAY_MILLISECONDS,
    }  # fmt: skip
