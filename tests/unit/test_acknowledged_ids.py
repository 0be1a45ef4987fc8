"""Acknowledged IDs are parsed, and faults with these IDs are flagged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse import catalogue
from synapse_lakehouse.streams.checks.operator_acknowledgements import (
    ACKNOWLEDGED_FLAG,
    AcknowledgedIdsError,
    flag_acknowledged,
    parse_acknowledged_ids,
)
from synapse_lakehouse.streams.gaps.classify import GapClass, StreamGap

CATALOGUE = catalogue.load_catalogue()


def test_ids_and_ranges_of_streams_are_read() -> None:
    actual = parse_acknowledged_ids(CATALOGUE, "events:4711,4800..4810 backfill:-20..-12")
    assert actual == {"events": [(4711, 4711), (4800, 4810)], "backfill": [(12, 20)]}
    assert parse_acknowledged_ids(CATALOGUE, "") == {}


@pytest.mark.parametrize("setting", ["events", "events:", "events:x", "events:4..", "evnets:4", "events:1;2"])
def test_invalid_entries_are_named(setting: str) -> None:
    with pytest.raises(AcknowledgedIdsError, match=setting.split(":")[0]):
        parse_acknowledged_ids(CATALOGUE, setting)


RANGES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))), max_size=4)


@given(st.integers(1, 40), st.integers(0, 20), RANGES, st.sampled_from(GapClass))
def test_only_acknowledged_ids_are_flagged_and_none_is_dropped(
    first: int, additional: int, ranges: list[tuple[int, int]], gap_class: GapClass
) -> None:
    parts = list(flag_acknowledged(StreamGap(first, first + additional, gap_class), ranges))
    reported = [number for part in parts for number in range(part.first, part.last + 1)]
    assert reported == list(range(first, first + additional + 1))
    flagged = {
        number for part in parts if ACKNOWLEDGED_FLAG in part.flags for number in range(part.first, part.last + 1)
    }
    is_fault = gap_class in (GapClass.LOST, GapClass.LATE, GapClass.DUPLICATE, GapClass.CHANGED)
    assert flagged == {number for number in reported if is_fault and any(low <= number <= high for low, high in ranges)}
