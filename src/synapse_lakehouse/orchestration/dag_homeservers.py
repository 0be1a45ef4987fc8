"""The homeservers of this Airflow: each has its own DAGs, whose tasks use its settings and its lake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from airflow.sdk.exceptions import AirflowFailException
from pydantic import ValidationError

from synapse_lakehouse.config import homeservers
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

_shared_environment: Final = dict(os.environ)


@dataclass(frozen=True)
class DagHomeserver:
    """A homeserver as its DAGs see it.

    Without LAKEHOUSE_HOMESERVERS there is one homeserver. Its ``name`` is LAKEHOUSE_HOMESERVER, or empty.
    """

    name: str
    settings: Settings

    def get_dag_id(self, dag: str) -> str:
        """Return the ID of the homeserver's DAG ``dag``."""
        return homeservers.get_dag_id(dag, self.name)

    def get_title(self, title: str) -> str:
        """Return the display name of the homeserver's DAG."""
        return f"{title}: {self.name}" if self.name else title


def list_dag_homeservers() -> Iterator[DagHomeserver]:
    """Yield the homeservers. If the settings of one are wrong, its DAGs exist nevertheless, and their runs fail.

    :raises LakehouseError, ValidationError: if the shared settings are wrong; Airflow shows it as an import error.
    """
    shared = Settings()
    names = homeservers.list_homeservers()
    if not names:
        yield DagHomeserver(shared.lakehouse_homeserver or "", shared)
    for name in names:
        try:
            yield DagHomeserver(name, homeservers.load_homeserver_settings(name))
        except (ValueError, LakehouseError):
            yield DagHomeserver(name, shared)


def load_task_settings(dag_id: str = "") -> Settings:
    """Return the settings for a task: see :func:`load_dag_settings`.

    :raises AirflowFailException: when they are wrong. A retry would read them again in vain.
    """
    try:
        return load_dag_settings(dag_id)
    except (LakehouseError, ValidationError) as error:
        raise AirflowFailException(str(error)) from None


def load_dag_settings(dag_id: str = "") -> Settings:
    """Return the settings of a DAG's homeserver. From then on, this process and processes that it starts use them.

    :param dag_id: ID of the DAG; by default a DAG of the only homeserver.
    :raises LakehouseError, ValidationError: when they are wrong.
    """
    _, name = homeservers.split_dag_id(dag_id)
    present = Settings()
    if not name or (present.lakehouse_homeserver == name and not present.lakehouse_homeservers):
        return present
    # Airflow runs callbacks of several DAGs in one process.
    os.environ.clear()
    os.environ.update(_shared_environment)
    homeservers.select_homeserver(name)
    return Settings()
