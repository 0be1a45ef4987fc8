"""Runs, their names and intervals."""

from datetime import UTC, datetime, timedelta

import pytest

from synapse_lakehouse.config.run import IncompleteIntervalError, Run, is_run_branch, parse_run_arguments

START, END = datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC)


def test_a_run_is_parsed_from_its_arguments() -> None:
    run = Run("scheduled__2026-11-18; drop table", START, END)
    assert parse_run_arguments("", run.to_arguments()) == run


def test_runs_of_an_interval_have_different_branches() -> None:
    first, second = Run("a", START, END), Run("b", START, END)
    assert first.branch != second.branch
    assert first.tag == second.tag == "interval_20261117T000000Z_20261118T000000Z"
    assert is_run_branch(first.branch)
    assert first.branch == first.branch.lower(), "REST catalogs refuse capital letters"
    assert not is_run_branch("main")
    assert not is_run_branch(first.tag)


def test_an_interval_that_is_not_over_is_refused() -> None:
    run = Run("a", START, END)
    run.require_complete(now=END)
    with pytest.raises(IncompleteIntervalError):
        run.require_complete(now=END - timedelta(seconds=1))


@pytest.mark.parametrize(("start", "end"), [(END, START), (START, START), (START.replace(tzinfo=None), END)])
def test_invalid_intervals_are_refused(start: datetime, end: datetime) -> None:
    with pytest.raises(ValueError, match="interval"):
        Run("a", start, end)
