"""What the tasks do besides calling the package."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.sdk import DAG

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.usefixtures("dags")


def test_a_run_without_a_data_interval_is_refused() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from synapse_lakehouse.orchestration.runs import run_of

    with pytest.raises(AirflowFailException, match="Trigger it with a logical date"):
        run_of({"run_id": "manual__1", "data_interval_start": None, "data_interval_end": None})


def test_the_run_is_the_context_s(dags: "dict[str, DAG]") -> None:
    from synapse_lakehouse.orchestration.runs import run_of

    start, end = datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC)
    interval = {"run_id": "manual__1", "data_interval_start": start, "data_interval_end": end}
    run, other = (run_of(interval | {"dag": dags[name]}) for name in ("lakehouse", "lake_maintenance"))
    assert (run.run_id, run.start, run.end) == ("manual__1", start, end)
    assert other.run_id == "lake_maintenance manual__1"
    assert other.branch != run.branch


@pytest.mark.parametrize(
    ("output", "again"),
    [
        ("Error code is: 1.\nLast spark-submit output:\nerror: The disk is full.", False),
        ("Error code is: 1.\nLast spark-submit output:\njava.lang.OutOfMemoryError: Java heap space", True),
    ],
)
def test_only_what_an_app_did_not_explain_is_tried_again(output: str, again: bool) -> None:
    from airflow.sdk import RetryAction

    from synapse_lakehouse.orchestration.apps import UnlessExplained

    decision = UnlessExplained().evaluate(RuntimeError(output), try_number=1, max_tries=2)
    assert (decision.action is RetryAction.FAIL) is not again


@pytest.mark.parametrize("rehearse", [True, False])
def test_a_rehearsal_skips_publishing(rehearse: bool) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from synapse_lakehouse.orchestration.runs import unless_rehearsal

    if rehearse:
        with pytest.raises(AirflowSkipException):
            unless_rehearsal({"params": {"rehearse": True}})
    else:
        unless_rehearsal({"params": {"rehearse": False}})
