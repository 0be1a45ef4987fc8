"""A run's progress, parsed from Airflow's log."""

import json
from typing import Any

import pytest

from synapse_lakehouse.cli.runs.task_log import KILLED_TEXT, RunStep, TaskLogParser, extract_failure_reason


def line(event: str, second: int = 0, **fields: Any) -> str:
    return json.dumps({"timestamp": f"2026-11-21T01:00:{second:02}.500000Z", "event": event, "logger": "x"} | fields)


def parse_lines(*lines: str) -> tuple[TaskLogParser, list[RunStep]]:
    parser = TaskLogParser()
    return parser, [step for text in lines if (step := parser.read(text))]


def test_a_task_starts_reports_progress_and_ends() -> None:
    parser, steps = parse_lines(
        line("creating dag run", run_id="manual__1"),
        line("[DAG TEST] starting task_id=bronze.snapshot_tables map_index=-1", 1),
        line("Spark-Submit cmd: spark-submit", 2),
        line("progress: 1/56 bronze.events: 12 rows", 3),
        "progress: printed by a Python task",
        line("Task instance state updated", 4, new_state="success"),
        line("[DAG TEST] end task task_id=bronze.snapshot_tables map_index=-1", 5),
    )
    task = "bronze.snapshot_tables"
    assert parser.run_id == "manual__1"
    assert steps == [
        RunStep("started", task),
        RunStep("progress", task, "1/56 bronze.events: 12 rows"),
        RunStep("progress", task, "printed by a Python task"),
        RunStep("success", task, seconds=4.0),
    ]


@pytest.mark.parametrize(
    ("code", "is_killed"), [("-9", True), ("137", True), ("1", False), ("-15", False), ("1379", False), ("-90", False)]
)
def test_a_killed_driver_is_the_reason(code: str, is_killed: bool) -> None:
    message = f"Cannot execute: spark-submit app.py. Error code is: {code}.\nLast spark-submit output:\nprogress: 1/56"
    assert (KILLED_TEXT in extract_failure_reason(message)) is is_killed


def test_a_failure_is_reported_until_the_next_try() -> None:
    task = "bronze.snapshot_tables"
    start, end = (f"[DAG TEST] {action} task_id={task} map_index=-1" for action in ("starting", "end task"))
    failure = line("Task failed with exception", exception=[{"exc_type": "ValueError", "exc_value": "broken"}])
    _, steps = parse_lines(
        line(start), failure, line("Task instance state updated", new_state="up_for_retry"), line(end, 2),
        line(start, 3), line("Task instance state updated", 4, new_state="success"), line(end, 5),
    )  # fmt: skip
    assert [step.kind for step in steps] == ["started", "up_for_retry", "started", "success"]
    assert [step.text for step in steps] == ["", "broken", "", ""]


def test_a_task_that_waits_starts_and_ends_once() -> None:
    start, end = (f"[DAG TEST] {action} task_id=a map_index=-1" for action in ("starting", "end task"))
    _, steps = parse_lines(
        line(start), line("Task instance state updated", new_state="up_for_reschedule"), line(end, 2),
        line(start, 20), line("Task instance state updated", 21, new_state="up_for_reschedule"), line(end, 22),
        line(start, 50), line("Task instance state updated", 51, new_state="success"), line(end, 52),
    )  # fmt: skip
    assert [(step.kind, step.seconds) for step in steps] == [("started", 0), ("success", 52)]


def test_a_task_without_a_final_state_has_failed() -> None:
    _, steps = parse_lines(
        line("[DAG TEST] starting task_id=a map_index=-1"), line("[DAG TEST] end task task_id=a map_index=-1", 1)
    )
    assert steps[-1].kind == "failed"


def test_warnings_of_the_package_are_shown() -> None:
    _, steps = parse_lines(line("waiting for run other", logger="synapse_lakehouse.iceberg.lease.lease"))
    assert [(step.kind, step.text) for step in steps] == [("logged", "waiting for run other")]


SUBMIT = "Cannot execute: spark-submit --master local[*]. Error code is: 1.\nLast spark-submit output:\n"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("The interval is not over yet.\n", "The interval is not over yet."),
        (SUBMIT + "error: The role may not read events.\nGRANT it.\n26/11/21 01:00:00 INFO Shutdown: bye",
         "The role may not read events.\nGRANT it."),
        (SUBMIT + "Traceback (most recent call last):\nFile x\nValueError: no\n26/11/21 01:00:00 INFO x",
         "ValueError: no"),
        (SUBMIT + "26/11/21 01:00:00 INFO x\nKilled", "Killed"),
        (SUBMIT + "26/11/21 01:00:00 INFO x", "Cannot execute: spark-submit --master local[*]. Error code is: 1."),
    ],
)  # fmt: skip
def test_the_reason_is_the_error_message(message: str, expected: str) -> None:
    assert extract_failure_reason(message) == expected
