"""Contexts, retries and callbacks of tasks."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.alerts.message import AlertMessage
from synapse_lakehouse.config.run import Run
from tests.support.homeserver_files import write_homeserver

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

DAY = (datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
pytestmark = pytest.mark.usefixtures("dags")


def test_a_run_without_a_data_interval_is_refused() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from synapse_lakehouse.orchestration.run_lifecycle import get_run

    with pytest.raises(AirflowFailException, match="logical date"):
        get_run({"run_id": "manual__1", "data_interval_start": None, "data_interval_end": None})


def test_a_run_is_read_from_the_context(dags: "dict[str, DAG]") -> None:
    from synapse_lakehouse.orchestration.run_lifecycle import get_run

    start, end = datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC)
    contexts: list[Any] = [
        {"run_id": "manual__1", "data_interval_start": start, "data_interval_end": end, "dag": dags[name]}
        for name in ("lakehouse", "lake_maintenance")
    ]
    run, maintenance_run = map(get_run, contexts)
    assert (run.run_id, run.start, run.end) == ("manual__1", start, end)
    assert maintenance_run.run_id == "lake_maintenance manual__1"
    assert maintenance_run.branch != run.branch


@pytest.mark.parametrize(
    ("line", "action", "pause"),
    [
        ("error: The disk is full.", "fail", None),
        ("retried later: Another session waits to change events.", "retry", timedelta(minutes=3)),
        ("java.lang.OutOfMemoryError: Java heap space", "default", None),
    ],
)
def test_the_output_of_a_driver_decides_about_a_retry(line: str, action: str, pause: timedelta | None) -> None:
    from synapse_lakehouse.orchestration.spark_tasks import RetryUnlessReported

    output = f"Error code is: 1.\nLast spark-submit output:\n{line}"
    decision = RetryUnlessReported().evaluate(RuntimeError(output), try_number=1, max_tries=2)
    assert (decision.action.value, decision.retry_delay) == (action, pause)


def test_files_of_an_app_are_private(lakehouse_dag: "DAG") -> None:
    from synapse_lakehouse.orchestration.spark_tasks import create_spark_task

    overrides: list[Context] = []
    context: Context = {"run_id": "manual__1", "dag": lakehouse_dag}
    previous_umask = os.umask(0o022)
    try:
        execute = create_spark_task("snapshot_tables", "Copy", pre_execute=overrides.append)._pre_execute_hook
        assert execute
        execute(context)
        assert os.umask(0o022) == 0o077
    finally:
        os.umask(previous_umask)
    assert overrides == [context]


@pytest.mark.parametrize("rehearse", [True, False])
def test_a_rehearsal_skips_publishing(rehearse: bool) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from synapse_lakehouse.orchestration.run_lifecycle import skip_if_rehearsal

    if rehearse:
        with pytest.raises(AirflowSkipException):
            skip_if_rehearsal({"params": {"rehearse": True}})
    else:
        skip_if_rehearsal({"params": {"rehearse": False}})


@pytest.fixture
def reported_findings(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[AlertFinding]]:
    """Return the last findings of each scope that the callbacks reported."""
    from synapse_lakehouse.orchestration import callbacks

    findings_by_scope: dict[str, list[AlertFinding]] = {}

    def report(_settings: object, scope: str, findings: list[AlertFinding], _page: str = "") -> None:
        findings_by_scope[scope] = findings

    monkeypatch.setattr(callbacks, "report_findings", report)
    return findings_by_scope


def callback_context(task: str, error: Exception | None, reason: str | None = None) -> "Context":
    """Return the context that the callback of a task receives."""
    task_instance = SimpleNamespace(task_id=task, log_url="https://airflow/log")
    dag = SimpleNamespace(dag_id="nightly", dagrun_timeout=timedelta(minutes=5))
    interval = {"data_interval_start": DAY[0], "data_interval_end": DAY[1]}
    context = {"ti": task_instance, "dag": dag, "run_id": "r", "exception": error, "reason": reason} | interval
    return cast("Context", context)


def test_only_a_crash_of_a_validation_alerts_as_failure(reported_findings: dict[str, list[AlertFinding]]) -> None:
    from synapse_lakehouse.orchestration import callbacks

    callbacks.alert_on_dag_failure(
        callback_context("validate_bronze", callbacks.AlreadyReportedError("2 checks failed"))
    )
    assert reported_findings == {}
    callbacks.alert_on_dag_failure(callback_context("validate_bronze", RuntimeError("the lease was lost")))
    (finding,) = reported_findings["dag nightly"]
    assert finding.kind is IncidentKind.RUN_FAILED
    task, interval = finding.description.splitlines()
    assert "validate_bronze of run r " in task
    assert "2026-11-17 00:00 to 2026-11-18 00:00 UTC" in interval


def test_only_a_timeout_alerts_for_the_whole_run(reported_findings: dict[str, list[AlertFinding]]) -> None:
    from synapse_lakehouse.orchestration import callbacks

    callbacks.alert_on_timeout(callback_context("look", None, "task_failure"))
    assert reported_findings == {}
    callbacks.alert_on_timeout(callback_context("look", None, "timed_out"))
    (finding,) = reported_findings["dag nightly"]
    assert "run r " in finding.description
    assert "0:05:00" in finding.description


def test_a_task_without_downstream_has_its_own_incident(reported_findings: dict[str, list[AlertFinding]]) -> None:
    from synapse_lakehouse.orchestration import callbacks

    callbacks.alert_on_task_failure(callback_context("preflight", RuntimeError("too busy")))
    callbacks.resolve_dag_incident(callback_context("look", None))
    assert [finding.subject for finding in reported_findings["dag nightly, task preflight"]] == [
        "task preflight of DAG nightly"
    ]
    callbacks.alert_on_task_failure(
        callback_context("preflight", callbacks.AlreadyReportedError("a sequence is behind"))
    )
    assert reported_findings["dag nightly, task preflight"] == []


@pytest.mark.parametrize(("dag", "message_count"), [("lakehouse.shop", 1), ("stream_watch.shop", 0)])
def test_a_homeserver_with_wrong_settings_alerts(
    dag: str, message_count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from synapse_lakehouse.alerts.sinks import AlertSink
    from synapse_lakehouse.orchestration import callbacks, dag_homeservers

    variables = os.environ | {"LAKEHOUSE_HOMESERVERS": str(tmp_path), "LAKEHOUSE_ALERT_URLS": "json://localhost"}
    write_homeserver(tmp_path, "shop", lakehouse_gap_budget="many")
    messages: list[str] = []

    def send(_: AlertSink, message: AlertMessage, __: float) -> bool:
        messages.append(message.title)
        return True

    monkeypatch.setattr(dag_homeservers, "_shared_environment", variables)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(AlertSink, "send", send)
    context = callback_context("open_run", RuntimeError("the settings are wrong"))
    context["dag"].dag_id = dag
    callbacks.alert_on_dag_failure(context)
    callbacks.resolve_dag_incident(context)
    assert len(messages) == message_count
    assert all(title.startswith("shop: ") for title in messages)


def test_wrong_settings_fail_without_a_retry_and_with_one_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from synapse_lakehouse.orchestration import compression_tasks, dag_homeservers, run_lifecycle
    from synapse_lakehouse.orchestration.callbacks import AlreadyReportedError

    write_homeserver(tmp_path, "shop", lakehouse_gap_budget="many")
    monkeypatch.setattr(dag_homeservers, "_shared_environment", os.environ | {"LAKEHOUSE_HOMESERVERS": str(tmp_path)})
    monkeypatch.setattr(os, "environ", os.environ.copy())
    context = callback_context("open_run", None)
    context["dag"].dag_id = "lakehouse.shop"
    monkeypatch.setattr(run_lifecycle, "get_current_context", lambda: context)
    for task in (run_lifecycle.open_run, run_lifecycle.open_maintenance, run_lifecycle.report_reconciliation):
        with pytest.raises(AirflowFailException, match=r"shop\.env") as error_info:
            task()
        assert not isinstance(error_info.value, AlreadyReportedError)
    with pytest.raises(AirflowFailException, match=r"shop\.env"):
        compression_tasks.skip_if_disabled(context)
    with pytest.raises(AlreadyReportedError, match=r"shop\.env"):
        run_lifecycle.close_run()


def test_findings_name_the_run() -> None:
    from synapse_lakehouse.orchestration.callbacks import add_run_details

    (late,) = add_run_details([AlertFinding(IncidentKind.LATE_IDS, "stream events", "2 ids came late")], Run("r", *DAY))
    assert late.description == "2 ids came late\nrun r, interval 2026-11-17 00:00 to 2026-11-18 00:00 UTC"
