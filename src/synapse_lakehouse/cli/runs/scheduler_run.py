"""A run by the scheduler of a running ``lakehouse ui``, followed through Airflow's REST API."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request

from synapse_lakehouse.cli.runs.task_log import RunStep, TaskState, extract_failure_reason
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.local import loopback

POLL_SECONDS = 1.0
START_SECONDS = 180.0


class SchedulerError(LakehouseError):
    """The running Airflow refused the run, or was stopped; the message has the reason."""


class SchedulerUnreachableError(SchedulerError):
    """The running Airflow does not answer at its address."""


@dataclass(frozen=True)
class ScheduledRun:
    """A run of the DAG by the Airflow at ``address``."""

    address: str
    token: str
    dag_id: str
    run_id: str

    @property
    def where(self) -> str:
        """URL of the run."""
        return f"{self.address}/dags/{self.dag_id}/runs/{quote(self.run_id)}"

    @property
    def farewell(self) -> str:
        """Message when the user stops watching."""
        return f"The run continues in Airflow: {self.where}"

    def steps(self) -> Iterator[RunStep]:
        """Yield the steps of the run until it ends; failed steps have the reason."""
        printed: dict[str, tuple[int, str]] = {}
        while True:
            has_ended = self._get("")["state"] in {"success", "failed"}
            tasks = self._get("/taskInstances")["task_instances"]
            for task in sorted(tasks, key=lambda task: task["start_date"] or "~"):
                now = (task["try_number"], task["state"])
                if task["state"] and printed.get(task["task_id"]) != now:
                    printed[task["task_id"]] = now
                    if step := self._step(task):
                        yield step
            if has_ended:
                return
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Do nothing: the scheduler continues the run."""

    def failed(self) -> bool:
        """Return whether the run failed."""
        return bool(self._get("")["state"] == "failed")

    def _step(self, task: dict[str, Any]) -> RunStep | None:
        if task["state"] == "running":
            return RunStep("started", task["task_id"])
        if task["state"] not in get_args(TaskState):
            return None
        is_failed = task["state"] in {"failed", "up_for_retry"}
        return RunStep(task["state"], task["task_id"], self._reason(task) if is_failed else "", task["duration"] or 0.0)

    def _reason(self, task: dict[str, Any]) -> str:
        log = self._get(f"/taskInstances/{task['task_id']}/logs/{task['try_number']}?full_content=true")["content"]
        details = [entry["error_detail"] for entry in log if isinstance(entry, dict) and entry.get("error_detail")]
        return (
            extract_failure_reason(details[-1][0]["exc_value"])
            if details
            else "See the log of the task in the browser."
        )

    def _get(self, path: str) -> dict[str, Any]:
        return _call(f"{self.address}/api/v2/dags/{self.dag_id}/dagRuns/{quote(self.run_id)}{path}", self.token)


def trigger_run(
    address: str, dag_id: str, credential: Mapping[str, str], logical_date: datetime, start: datetime, end: datetime
) -> ScheduledRun:
    """Trigger a run of a DAG in the running Airflow for the interval from ``start`` to ``end``.

    :param credential: username and password.
    :raises SchedulerError: when the DAG is paused, Airflow does not answer, or another user listens on its port.
    """
    _await(address)
    if not loopback.is_own_listener(urlsplit(address).port or 0):
        raise SchedulerUnreachableError(
            f"Another user of this machine listens at {address}, the address of `make ui`. So Airflow's password was "
            "not sent. Stop `make ui`, and start it with another PORT."
        )
    token = _call(f"{address}/auth/token", body=json.dumps(dict(credential)).encode())["access_token"]
    if _call(f"{address}/api/v2/dags/{dag_id}", token)["is_paused"]:
        raise SchedulerError(
            f"Airflow is running at {address} and the DAG {dag_id} is paused there, so a run would never start. "
            "Unpause it in the browser, or stop `make ui`; then run again."
        )
    body = {
        "logical_date": logical_date.isoformat(),
        "data_interval_start": start.isoformat(),
        "data_interval_end": end.isoformat(),
    }
    return ScheduledRun(
        address,
        token,
        dag_id,
        _call(f"{address}/api/v2/dags/{dag_id}/dagRuns", token, json.dumps(body).encode())["dag_run_id"],
    )


def _await(address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            _call(f"{address}/api/v2/monitor/health")
        except SchedulerUnreachableError:
            time.sleep(POLL_SECONDS)
        else:
            return


def _call(url: str, token: str | None = None, body: bytes | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with loopback.open_url(Request(url, data=body, headers=headers), timeout=30) as answer:  # noqa: S310 - http on 127.0.0.1
            response: dict[str, Any] = json.load(answer)
            return response
    except HTTPError as error:
        reported = error.read().decode(errors="replace")[:500]
        raise SchedulerError(f"The Airflow of `make ui` refused the request (HTTP {error.code}): {reported}") from None
    except OSError as error:
        raise SchedulerUnreachableError(
            f"The Airflow of `make ui` does not answer at {url} ({error}). It may have been stopped. Its runs continue "
            "when `make ui` is started again."
        ) from None
