"""The scheduler and local runs lock LAKEHOUSE_HOME against each other."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local import home_lock
from synapse_lakehouse.local.airflow.prepare_airflow import LocalAirflowError

ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture
def home_settings(tmp_path: Path) -> Settings:
    (tmp_path / "airflow").mkdir()
    return Settings(_env_file=None, lakehouse_home=tmp_path)


@pytest.mark.parametrize(
    "claim", [home_lock.claim_for_test_run, partial(home_lock.claim_for_scheduler, address=ADDRESS)]
)
def test_the_next_claim_waits_for_a_test_run(home_settings: Settings, claim: Callable[..., Any]) -> None:
    waiting, started = threading.Event(), threading.Event()

    def begin() -> None:
        with claim(home_settings, report=lambda _: waiting.set()) as scheduler:
            assert scheduler is None
            started.set()

    second = threading.Thread(target=begin)
    with home_lock.claim_for_test_run(home_settings, print):
        second.start()
        assert waiting.wait(10)
        assert not started.is_set()
    second.join(10)
    assert started.is_set()


def test_a_killed_scheduler_has_no_claim(home_settings: Settings) -> None:
    lock = home_settings.lakehouse_home / "airflow" / "scheduler.lock"
    with home_lock.claim_for_scheduler(home_settings, ADDRESS, print):
        scheduler_entry = lock.read_text()
    lock.write_text(scheduler_entry)
    with home_lock.claim_for_test_run(home_settings, print) as scheduler:
        assert scheduler is None
        assert lock.read_text() == ""


def test_a_run_gets_the_address_of_the_scheduler(home_settings: Settings) -> None:
    with (
        home_lock.claim_for_scheduler(home_settings, ADDRESS, print),
        home_lock.claim_for_test_run(home_settings, print) as scheduler,
    ):
        assert scheduler == home_lock.RunningScheduler(ADDRESS, ())
    with home_lock.claim_for_test_run(home_settings, print) as scheduler:
        assert scheduler is None


def test_a_run_reports_differing_settings_without_values(home_settings: Settings) -> None:
    other_settings = home_settings.model_copy(
        update={"synapse_dsn": "postgresql://me:secret-word@here/synapse", "lakehouse_erasure_days": 7}
    )
    with (
        home_lock.claim_for_scheduler(home_settings, ADDRESS, print),
        home_lock.claim_for_test_run(other_settings, print) as scheduler,
    ):
        assert scheduler == home_lock.RunningScheduler(ADDRESS, ("LAKEHOUSE_ERASURE_DAYS", "SYNAPSE_DSN"))
    with home_lock.claim_for_scheduler(other_settings, ADDRESS, print):
        assert "secret-word" not in (home_settings.lakehouse_home / "airflow" / "scheduler.lock").read_text()


def test_a_second_scheduler_is_refused(home_settings: Settings) -> None:
    with (
        home_lock.claim_for_scheduler(home_settings, ADDRESS, print),
        pytest.raises(LocalAirflowError, match=ADDRESS),
        home_lock.claim_for_scheduler(home_settings, "http://127.0.0.1:8081", print),
    ):
        pass
