"""Parse the steps of a run from the JSON log of `airflow dags test`."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from synapse_lakehouse.errors import REPORT_PREFIX

_MARKER = re.compile(r"\[DAG TEST\] (starting|end task) task_id=(\S+)")
_PROGRESS = "progress: "
_SPARK_LOG = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_OUTPUT = "Last spark-submit output:\n"
_TAIL = 8
# Signal 9 as the return code of a child process, and as a shell or a JVM reports it.
_EXIT_CODE = re.compile(r"Error code is: (?:-9|137)\b")

KILLED_TEXT = "was killed by signal 9 (SIGKILL)"
"""Part of the reason of a task whose process was killed."""

TaskState = Literal["success", "skipped", "failed", "up_for_retry"]


@dataclass(frozen=True)
class RunStep:
    """A step of a run: a task started, reported progress, logged a note, or ended after ``seconds``."""

    kind: Literal["started", "progress", "logged"] | TaskState
    task: str
    text: str = ""
    seconds: float = 0.0


@dataclass
class TaskLogParser:
    """Parses the log line by line."""

    run_id: str | None = None
    task: str = ""
    _started: datetime | None = None
    _state: TaskState = "failed"
    _reason: str = ""
    _is_waiting: bool = False
    """Whether Airflow will start the task again, because it waits for another run."""

    def read(self, line: str) -> RunStep | None:
        """Parse one line of the log; return its step, if any."""
        entry = _entry(line)
        if entry is None:
            return self._progress_step(line)
        event = str(entry.get("event", ""))
        if event == "creating dag run":
            self.run_id = entry["run_id"]
        elif marker := _MARKER.match(event):
            return self._task_step(marker[1], marker[2], datetime.fromisoformat(entry["timestamp"]))
        elif event == "Task instance state updated" and entry.get("new_state") in get_args(TaskState):
            self._state = entry["new_state"]
        elif event == "Task instance state updated" and entry.get("new_state") == "up_for_reschedule":
            self._is_waiting = True
        elif "exception" in entry and self.task and event.startswith("Task failed"):
            self._reason = extract_failure_reason(entry["exception"][0]["exc_value"])
        elif str(entry.get("logger", "")).startswith("synapse_lakehouse"):
            return RunStep("logged", self.task, event)
        else:
            return self._progress_step(event)
        return None

    def _task_step(self, marker: str, task: str, at: datetime) -> RunStep | None:
        if self._is_waiting:
            self._is_waiting = marker != "starting"
            return None
        if marker == "starting":
            self.task, self._started, self._state, self._reason = task, at, "failed", ""
            return RunStep("started", task)
        seconds = (at - self._started).total_seconds() if self._started else 0.0
        return RunStep(self._state, task, self._reason, seconds)

    def _progress_step(self, text: str) -> RunStep | None:
        is_progress = text.startswith(_PROGRESS)
        return RunStep("progress", self.task, text.removeprefix(_PROGRESS).strip()) if is_progress else None


def extract_failure_reason(message: str) -> str:
    """Return the relevant part of a task's error message.

    For spark-submit's output, this is the error that the app reported. If the app reported none, it is the exception,
    or the last lines of the output.
    """
    command, output, lines = message.partition(_OUTPUT)
    if _EXIT_CODE.search(command):
        return f"Spark's driver {KILLED_TEXT}."
    if not output:
        return message.strip()
    messages = [line for line in lines.splitlines() if line.strip() and not _SPARK_LOG.match(line)]
    for number, line in enumerate(messages):
        if line.startswith(REPORT_PREFIX):
            return "\n".join(messages[number:]).removeprefix(REPORT_PREFIX)
    exceptions = [number for number, line in enumerate(messages) if _EXCEPTION.match(line)]
    if exceptions:
        return "\n".join(messages[exceptions[-1] :][:_TAIL])
    return "\n".join(messages[-_TAIL:]) or command.strip()


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
