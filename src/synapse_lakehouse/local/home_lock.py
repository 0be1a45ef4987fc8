"""Lock a LAKEHOUSE_HOME, because only one scheduler or one `airflow dags test` may use it at a time.

A scheduler executes every run in its database, so it would execute a test run a second time. The lake lease does not
separate test runs with different lakes: they would share files of dbt and Great Expectations.
"""

import fcntl
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import IO, Any, Final

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.airflow.prepare_airflow import LocalAirflowError, get_airflow_home

_PAUSE_SECONDS: Final = 0.1
_SURELY_WRITTEN: Final = 10
"""Number of pauses after which a scheduler with the lock has certainly written its address."""


@dataclass(frozen=True)
class RunningScheduler:
    """The scheduler with the lock. ``others``: names of settings whose values differ from the scheduler's."""

    address: str
    others: tuple[str, ...]


@contextmanager
def claim_for_scheduler(settings: Settings, address: str, report: Callable[[str], None]) -> Iterator[None]:
    """Wait for test runs to end, and lock the home for the scheduler of the Airflow at ``address``.

    :raises LocalAirflowError: when another scheduler has the lock.
    """
    with _open_claims(settings) as claims:
        try:
            fcntl.flock(claims, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if other := _read_claim(claims):
                raise LocalAirflowError(
                    f"Airflow is already running at {other['address']}, on the same {settings.lakehouse_home}. Use "
                    "that Airflow, or set LAKEHOUSE_HOME to another folder."
                ) from None
            report("waiting for `lakehouse run` to end")
            fcntl.flock(claims, fcntl.LOCK_EX)
        claims.truncate(0)
        salt = secrets.token_hex()
        json.dump({"address": address, "salt": salt, "settings": _hash_settings(settings, salt)}, claims)
        claims.flush()
        try:
            yield
        finally:
            claims.truncate(0)


@contextmanager
def claim_for_test_run(settings: Settings, report: Callable[[str], None]) -> Iterator[RunningScheduler | None]:
    """Wait for other test runs, and lock the home for `airflow dags test`; yield the scheduler if one has the lock."""
    with _open_claims(settings) as claims:
        yield _find_scheduler(claims, settings, report)


def _find_scheduler(claims: IO[str], settings: Settings, report: Callable[[str], None]) -> RunningScheduler | None:
    for attempt in count():
        try:
            fcntl.flock(claims, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if claim := _read_claim(claims):
                claimed_hashes, own_hashes = claim["settings"], _hash_settings(settings, claim["salt"])
                differ = (
                    name
                    for name in claimed_hashes.keys() | own_hashes.keys()
                    if claimed_hashes.get(name) != own_hashes.get(name)
                )
                # The scheduler's tasks read the settings of each homeserver themselves.
                has_own_settings = "LAKEHOUSE_HOMESERVERS" in claimed_hashes and settings.lakehouse_homeserver
                return RunningScheduler(claim["address"], () if has_own_settings else tuple(sorted(differ)))
            if attempt == _SURELY_WRITTEN:
                report("waiting for another `lakehouse run` to end")
            time.sleep(_PAUSE_SECONDS)
        else:
            # The file may contain the address of a scheduler that was killed.
            claims.truncate(0)
            break
    return None


def _read_claim(claims: IO[str]) -> dict[str, Any] | None:
    """Return the scheduler's address and settings; None if the scheduler has not written them."""
    claims.seek(0)
    try:
        address_and_settings: dict[str, Any] = json.load(claims)
    except ValueError:
        return None
    return address_and_settings


def _hash_settings(settings: Settings, salt: str) -> Mapping[str, str]:
    """Return salted hashes of the settings by name. They show only whether values are equal."""
    return {name: sha256(f"{salt}{value}".encode()).hexdigest() for name, value in settings.to_environment().items()}


def _open_claims(settings: Settings) -> IO[str]:
    file = get_airflow_home(settings) / "scheduler.lock"
    file.touch(mode=0o600)
    return file.open("r+", encoding="utf-8")
