"""Who may use Airflow's database: one scheduler, or any number of `airflow dags test`, never both.

A scheduler takes over whatever run it finds in the database, so a tested run would be done twice at once.
"""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from synapse_lakehouse.embedded.airflow import AirflowError, home
from synapse_lakehouse.settings import Settings


@contextmanager
def scheduling(settings: Settings, address: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Claim the database for the scheduler of the Airflow at ``address``; waits for tested runs to end.

    :raises AirflowError: when another scheduler has it.
    """
    with _claims(settings) as claims:
        try:
            fcntl.flock(claims, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if other := claims.read():
                raise AirflowError(
                    f"Airflow is running at {other} already, on the same {settings.lakehouse_home}. Use that one, or "
                    "set LAKEHOUSE_HOME to another folder."
                ) from None
            tell("waiting for `lakehouse run` to end")
            fcntl.flock(claims, fcntl.LOCK_EX)
        claims.truncate(0)
        claims.write(address)
        claims.flush()
        try:
            yield
        finally:
            claims.truncate(0)


@contextmanager
def testing(settings: Settings) -> Iterator[str | None]:
    """Claim the database for `airflow dags test`; if a scheduler has it, the address of its Airflow instead."""
    with _claims(settings) as claims:
        yield _scheduler(claims)


def _scheduler(claims: IO[str]) -> str | None:
    while True:
        try:
            fcntl.flock(claims, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            claims.seek(0)
            if address := claims.read():
                return address
            time.sleep(0.1)
        else:
            return None


def _claims(settings: Settings) -> IO[str]:
    file = home(settings) / "scheduler.lock"
    file.touch()
    return file.open("r+")
